"""An ODBC driver that is missing is no server out of reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duesweep.checks.finding import Check
from duesweep.checks.server import unreachable
from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.sqlserver import library
from duesweep.drivers.sqlserver.errors import connect_errors
from duesweep.drivers.sqlserver.library import driver_library, odbc


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    driver_library.cache_clear()
    yield
    driver_library.cache_clear()


def _about(error: ConfigError | StoreError) -> tuple[str, str]:
    finding = unreachable("store.dsn", error)
    assert finding.found == error.text
    assert finding.advice
    return finding.check, finding.about


@pytest.mark.usefixtures("odbc")
def test_driver_that_does_not_load_is_told_as_such() -> None:
    with pytest.raises(ConfigError) as caught, connect_errors("db.example"):
        raise odbc().Error("01000", "[01000] [unixODBC][Driver Manager]Can't open lib '/x' (0)")

    assert _about(caught.value) == (Check.DRIVER_IMPORT, "store.dsn")


def test_driver_that_is_not_installed_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "find_spec", lambda _: None)

    with pytest.raises(ConfigError) as caught:
        driver_library()

    assert _about(caught.value) == (Check.DRIVER_IMPORT, "store.dsn")


def test_driver_that_is_not_for_this_machine_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(library, "find_spec", lambda _: Spec)

    with pytest.raises(ConfigError) as caught:
        driver_library()

    assert _about(caught.value) == (Check.DRIVER_IMPORT, "store.dsn")


def test_server_that_does_not_answer_is_out_of_reach() -> None:
    error = StoreError("No SQL Server takes a session at db.example: gone", transient=True)

    assert _about(error) == (Check.SERVER_REACHABLE, "store.dsn")
