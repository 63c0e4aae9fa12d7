"""The output of commands that need no server: help, settings, statements; a failed comparison."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.golden.commands import Printed, run
from support.golden.recorded import RENEW, ROOT, compare
from support.golden.statement_world import FORMS

_VERSION = re.compile(r"\d+(\.\w+)+")
_COMMAND = re.compile(r"^  ([a-z][a-z-]*) ", re.MULTILINE)
CONF = Path(__file__).parents[2] / "conf"
_POSTGRESQL = "postgresql://sweeper:s3cret@db.example:5432/nsb"
_SQL_SERVER = "Server=db.example,1433;Database=nsb;Uid=sweeper;Pwd=s3cret;Encrypt=yes"
# A store of each kind: its dsn, and its example in conf/.
STORES = {
    "postgresql": (_POSTGRESQL, "postgresql"),
    "sqlserver": (_SQL_SERVER, "sqlserver"),
    "msmq": (_SQL_SERVER, "msmq"),
    "sql-persistence-postgresql": (_POSTGRESQL, "sql-persistence"),
    "sql-persistence-sqlserver": (_SQL_SERVER, "sql-persistence"),
    "rabbitmq": (_SQL_SERVER, "rabbitmq"),
}


def _paths(path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """All commands and groups of commands, each with its help."""
    printed = run([*path, "--help"], is_terminal=True)
    yield path, printed.text
    _, _, commands = printed.out.partition("\nCommands:\n")
    for name in _COMMAND.findall(commands):
        yield from _paths((*path, name))


def test_help() -> None:
    found = dict(_paths())

    assert {(), ("sweep",), ("errors", "replay"), ("rabbitmq", "delays", "verify")} <= found.keys()
    printed = {f"{'-'.join(('duesweep', *path))}.txt": text for path, text in found.items()}
    printed["version.txt"] = _VERSION.sub("<version>", run(["--version"]).text)
    compare(ROOT / "help", printed)


@pytest.fixture
def _configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of conf/ in the current folder, with passwords in the environment."""
    for example in CONF.glob("*.toml"):
        text = example.read_text(encoding="utf-8")
        (tmp_path / example.name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("DUESWEEP_") and name != RENEW]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DUESWEEP_STORE__DSN", _POSTGRESQL)
    monkeypatch.setenv("DUESWEEP_QUEUES__MAIN__URL", "amqps://sweeper:s3cret@mq.example:5671/nsb")


def _select(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    dsn, example = STORES[store]
    monkeypatch.setenv("DUESWEEP_STORE__DSN", dsn)
    if example != "rabbitmq":
        # A setting for a connection that the other examples do not have.
        monkeypatch.delenv("DUESWEEP_QUEUES__MAIN__URL", raising=False)
    return f"{example}.toml"


@pytest.mark.usefixtures("_configured")
def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {}
    for store in STORES:
        with monkeypatch.context() as patch:
            result = run(["config", "--config", _select(store, patch)])
        printed[f"{store}.txt"] = result.text
    overriding = ["config", "--config", "postgresql.toml", "--set", "retry.max_attempts=7"]
    monkeypatch.delenv("DUESWEEP_QUEUES__MAIN__URL")
    printed["overridden.txt"] = run(overriding).text
    unknown = ["config", "--config", "postgresql.toml", "--set", "retry.max_attempt=7"]
    printed["unknown.txt"] = run(unknown).text

    assert "s3cret" not in "".join(printed.values())
    compare(ROOT / "config", printed)


@pytest.mark.usefixtures("_configured")
def test_statements_of_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {}
    # The example for RabbitMQ has a store of the SQL Server transport.
    for store in (one for one in STORES if one != "rabbitmq"):
        with monkeypatch.context() as patch:
            setup = ["setup", "--print-sql", "--config", _select(store, patch)]
            printed[f"{store}.txt"] = run([*setup, "--grant-to", "sweeper"]).text
            document = json.loads(run([*setup, "--json"]).out)
            # The document has the same statements, which need no second file.
            plain = run(setup)
            sql = plain.out.removesuffix("\n")
            assert document == {"sql": sql, "exit_code": 0, "error": None}
            assert plain.out.splitlines()[0] in printed[f"{store}.txt"]
    compare(ROOT / "setup", printed)


@pytest.mark.usefixtures("_configured")
def test_statements_for_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = {}
    for store in ("postgresql", "sqlserver"):
        with monkeypatch.context() as patch:
            given = ["--print-sql", "--config", _select(store, patch)]
            texts = [
                run([*words, *given]).text
                for words in (
                    ["queue", "create", "Billing"],
                    ["queue", "create", "Billing", "--readable-body"],
                    ["subscriptions", "create"],
                )
            ]
        printed[f"{store}.txt"] = "\n".join(texts)
    compare(ROOT / "queue", printed)


@pytest.mark.usefixtures("_configured")
def test_servers_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A place where any user may write.
    monkeypatch.setenv("DUESWEEP_LEDGER__ROOT", str(tmp_path / "ledger"))
    monkeypatch.setenv("DUESWEEP_STORE__DSN", "postgresql://sweeper:s3cret@127.0.0.1:1/nsb")
    monkeypatch.setenv("DUESWEEP_QUEUES__MAIN__URL", "amqp://sweeper:s3cret@127.0.0.1:1/nsb")
    printed = {}
    for name, words in {
        "sweep": ["sweep"],
        "list": ["list"],
        "doctor": ["doctor", "--no-spark"],
        "queue": ["queue", "peek", "Billing"],
        "rabbitmq": ["rabbitmq", "delays", "verify"],
    }.items():
        file = "rabbitmq.toml" if name == "rabbitmq" else "postgresql.toml"
        given = [*words, "--config", file, "--set", "store.kind=postgresql"]
        with monkeypatch.context() as patch:
            if name != "rabbitmq":
                patch.delenv("DUESWEEP_QUEUES__MAIN__URL")
            printed[f"{name}.pipe.txt"] = run(given).text
            printed[f"{name}.json.txt"] = run([*given, "--json"]).document

    assert "s3cret" not in "".join(printed.values())
    printed = {name: text.replace(str(tmp_path), "/folder") for name, text in printed.items()}
    compare(ROOT / "out-of-reach", printed)


RECORDED = {"1-list.txt": "$ duesweep list\ndue  messages\nall  3\n--- exit code 0\n"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv(RENEW, "1")
    compare(tmp_path / "world", RECORDED)
    monkeypatch.delenv(RENEW)
    return tmp_path / "world"


def _failure(folder: Path, printed: dict[str, str]) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        compare(folder, printed)
    return str(failed.value)


def test_changed_word_is_a_readable_difference(folder: Path) -> None:
    changed = {name: text.replace("messages", "letters") for name, text in RECORDED.items()}

    lines = _failure(folder, changed).splitlines()

    assert lines[1:3] == ["  1-list.txt", "--- recorded/1-list.txt"]
    assert [line for line in lines if "due  " in line] == ["-due  messages", "+due  letters"]
    assert f"{RENEW}=1 tests/run tests/golden" in lines[-1]


def test_file_that_is_missing_or_left_over_is_named(folder: Path) -> None:
    assert "1-list.txt" in _failure(folder, {})
    assert "+++ now/2-show.txt" in _failure(folder, {**RECORDED, "2-show.txt": "$ duesweep show\n"})


def test_each_recorded_folder_is_compared_by_a_test() -> None:
    """A test that is gone, or that pytest no longer finds by its file's name, would leave one."""
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py"))
    compared = {f"sweep_{form}" for form in FORMS} | set(re.findall(r'"([\w-]+)"', tests))
    recorded = {file.parent for file in ROOT.rglob("*") if file.is_file()}

    assert len(recorded) > 1
    assert [folder for folder in sorted(recorded) if folder.name not in compared] == []


def test_output_whose_last_line_has_no_end_is_another_one() -> None:
    for out, is_told in (("[]\n", False), ("[]", True)):
        printed = Printed(["list"], out, "", 0)
        assert ("no end of line" in printed.text) is is_told
        assert ("no end of line" in printed.document) is is_told


def test_renewing_removes_what_is_no_longer_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RENEW, "1")

    compare(folder, {"2-show.txt": "$ duesweep show\n"})

    assert [file.name for file in folder.iterdir()] == ["2-show.txt"]


def test_ci_refuses_to_renew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv(RENEW, "1")

    assert RENEW in _failure(folder, {"2-show.txt": "$ duesweep show\n"})

    assert [file.name for file in folder.iterdir()] == ["1-list.txt"]
