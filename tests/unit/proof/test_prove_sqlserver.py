"""The kit that asks a SQL Server, against a server that speaks its protocol and knows nothing."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.tds_server import Request, rows, tds_server

pytestmark = pytest.mark.usefixtures("odbc")

FAKE_ENGINE = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
case $1 in
  port) echo 127.0.0.1:{port} ;;
  run) echo a-container ;;
esac
"""
BROKEN_ENGINE = """#!/bin/sh
echo "Cannot connect to the engine" >&2
exit 1
"""
PLAN = """<ShowPlanXML xmlns="http://schemas.microsoft.com/sqlserver/2004/07/showplan">
<StmtSimple StatementText="DELETE  d FROM x"><QueryPlan><RelOp PhysicalOp="Table Delete">
<Update><Object Table="[Sales.Delayed]"/><RelOp PhysicalOp="{operator}"><Scan>
<Object Table="[{table}]"/></Scan></RelOp></Update></RelOp></QueryPlan></StmtSimple></ShowPlanXML>
"""
JUNIT = """<testsuites><testsuite tests="6" failures="1" errors="2" skipped="1">
<testcase classname="tests.a" name="test_a"/><testcase classname="tests.a" name="test_a2"/>
<testcase classname="tests.a" name="test_b"><failure message="it is&#10; not"/></testcase>
<testcase classname="tests.a" name="test_c"><skipped message="no server"/></testcase>
<testcase classname="tests.a" name="test_d"><error message="at its start"/></testcase>
<testcase classname="tests.a" name="test_d"><error message="at its end"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUESWEEP_TEST_SQLSERVER", raising=False)


def _prove(*arguments: str) -> int:
    from proof.sqlserver.__main__ import main  # noqa: PLC0415 - loads ODBC

    return main(arguments)


def _dsn(port: int) -> str:
    return f"Server=127.0.0.1,{port};Database=master;Uid=u;Pwd=n33dle;Encrypt=no"


def _ignorant(request: Request) -> bytes | None:
    """The answer of a stand-in to whom each question has the answer 3."""
    text = request.text
    if "'babelfish'" in text:
        return rows(["stand_in:int"], [1])
    if "'Edition'" in text:
        return rows(["version", "edition", "collation"], ["SQL Server", "Developer", "Latin1"])
    if "@@VERSION" in text:
        return rows(["version"], ["PostgreSQL (Babelfish 4.4)"])
    return rows(["answer:int"], [3]) if text.startswith("SELECT") else None


def _dying_after(requests: int) -> Callable[[Request], bytes | None]:
    left = iter(range(requests))

    def answer(request: Request) -> bytes | None:
        if next(left, None) is None:
            raise ConnectionResetError
        return _ignorant(request)

    return answer


def _engines(folder: Path, monkeypatch: pytest.MonkeyPatch, scripts: Mapping[str, str]) -> None:
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_without_engine_and_server_it_says_so_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _engines(tmp_path, monkeypatch, {"docker": BROKEN_ENGINE})
    file = tmp_path / "evidence.md"

    assert _prove("--file", str(file)) == 2

    said = capsys.readouterr().err
    assert "docker does not work: Cannot connect to the engine" in said
    assert "podman is not installed" in said
    assert "DUESWEEP_TEST_SQLSERVER" in said
    assert not file.exists()


def test_container_is_asked_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proof.sqlserver import servers  # noqa: PLC0415 - loads ODBC

    file = tmp_path / "evidence.md"
    monkeypatch.setattr(servers, "ENCRYPTION", "Encrypt=no")
    with tds_server(_ignorant) as server:
        engine = FAKE_ENGINE.format(port=server.port)
        _engines(tmp_path, monkeypatch, {"docker": BROKEN_ENGINE, "podman": engine})

        code = _prove("--versions", "2022", "--parts", "facts", "--file", str(file))

    calls = (tmp_path / "calls").read_text().splitlines()
    verbs = [call.split()[0] for call in calls]
    assert (code, verbs) == (1, ["info", "pull", "run", "port", "rm"])
    assert "/mssql/server:2022-latest" in calls[1]
    assert calls[-1] == "rm --force a-container"
    assert "| 2022 | Babelfish 4.4; Developer; Latin1 |" in file.read_text()


def test_answer_that_is_not_expected_is_named_with_the_expected_one(tmp_path: Path) -> None:
    file = tmp_path / "evidence.md"
    with tds_server(_ignorant) as server:
        code = _prove("--dsn", _dsn(server.port), "--parts", "facts", "--file", str(file))

    text = file.read_text()
    before, _, after = text.partition("## Questions and answers")
    assert code == 1
    skips, tables = (
        "Does READPAST skip rows that another session has claimed?",
        "A table is missing.",
    )
    assert f"| {skips} | 3 | 3 |" in after
    assert skips not in before
    assert f"| server, as it is | {tables} | error 208 (42S02): statement StoreError" in before
    assert "0 parts broke off" in before
    assert "n33dle" not in text


@pytest.mark.parametrize("requests", [1, 10, 200])
def test_server_that_dies_is_named_and_what_was_found_before_is_kept(
    requests: int, tmp_path: Path
) -> None:
    file = tmp_path / "evidence.md"
    with tds_server(_dying_after(requests)) as server:
        dsn = _dsn(server.port)
        code = _prove("--dsn", dsn, "--parts", "facts", "plans", "--rows", "1", "--file", str(file))

    text = file.read_text()
    assert code == 1
    assert "## Broken off" in text
    assert ("| server | Babelfish" in text) == (requests > 1)
    assert ("A table is missing." in text) == (requests == 200)
    assert "n33dle" not in text


def test_interrupted_run_leaves_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proof.sqlserver import __main__ as kit  # noqa: PLC0415 - loads ODBC

    answers = iter(["the first one"])

    def ask(*_: object) -> str:
        if (answer := next(answers, None)) is None:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(kit, "ask", ask)
    file = tmp_path / "evidence.md"
    with tds_server(_ignorant) as server:
        code = _prove("--dsn", _dsn(server.port), "--parts", "facts", "--file", str(file))

    assert code == 1
    assert "- interrupted" in file.read_text()
    assert "the first one" in file.read_text()


def test_part_for_which_no_time_is_left_is_named(tmp_path: Path) -> None:
    file = tmp_path / "evidence.md"
    with tds_server(_ignorant) as server:
        code = _prove("--dsn", _dsn(server.port), "--minutes", "0", "--file", str(file))

    assert code == 1
    parts = ("facts", "plans", "benchmark", "trials", "tests")
    assert [part for part in parts if f"{part}: TimeoutError" not in file.read_text()] == []


def test_run_is_good_only_if_everything_is_as_expected() -> None:
    from proof.sqlserver.evidence import Answer, Evidence, Figures  # noqa: PLC0415

    good, open_question = Answer("Is it?", "2022", "3, 4", "3*"), Answer("What?", "2022", "x")
    evidence = Evidence("Made by a test.", answers=[good, open_question])

    assert not Evidence("Nothing was asked.").is_good
    assert evidence.is_good
    assert not Evidence("", figures=[Figures("Tests", "1 failed", is_good=False)]).is_good
    assert not Evidence("", answers=[good, Answer("Is it?", "2019", "4", "3*")]).is_good
    assert not Evidence("", answers=[good], broken_off=["2019, facts"]).is_good


def test_same_answers_are_shown_once_and_others_with_their_servers() -> None:
    from proof.sqlserver.evidence import Answer, Evidence  # noqa: PLC0415

    given = [("a", "1"), ("b", "1"), ("c", "2")]
    answers = [Answer("Is it?", where, answer, "1") for where, answer in given]

    assert "| Is it? | 1 | 1 (a, b); 2 (c) |" in Evidence("", answers=answers).text()
    assert "| Is it? | 1 | 1 |" in Evidence("", answers=answers[:2]).text()


@pytest.mark.parametrize(
    ("operator", "table", "found"),
    [
        ("Table Scan", "Sales.Delayed", ["Table Scan: DELETE d FROM x"]),
        ("Index Scan", "Sales.Delayed", ["Index Scan: DELETE d FROM x"]),
        ("Index Seek", "Sales.Delayed", []),
        ("Table Scan", "duesweep_attempts", []),
    ],
)
def test_scan_of_the_delayed_table_is_found_in_a_plan(
    operator: str, table: str, found: list[str]
) -> None:
    from proof.sqlserver.plans import scans  # noqa: PLC0415 - loads ODBC

    assert scans(PLAN.format(operator=operator, table=table), "Sales.Delayed") == found


@pytest.mark.parametrize(
    ("operator", "table", "found"),
    [
        ("Sort", "Sales.Delayed", ["DELETE d FROM x"]),
        ("Index Seek", "Sales.Delayed", []),
        ("Sort", "other", []),
    ],
)
def test_sort_of_messages_is_found_in_a_plan(operator: str, table: str, found: list[str]) -> None:
    from proof.sqlserver.plans import sorts  # noqa: PLC0415 - loads ODBC

    plan = PLAN.format(operator=operator, table="Sales.Delayed")
    assert sorts(plan, table) == found


def test_failed_tests_are_named() -> None:
    from proof.sqlserver.commands import results_of  # noqa: PLC0415

    told = results_of(JUNIT)

    assert told.startswith("2 passed, 2 failed, 1 skipped.")
    assert told.splitlines()[2:] == [
        "- `tests.a::test_b`: it is not",
        "- `tests.a::test_d`: at its start",
    ]


def test_facts_fit_the_grammar_and_have_a_question_and_an_answer_each(tmp_path: Path) -> None:
    from proof.sqlserver.facts import read_facts  # noqa: PLC0415 - loads ODBC

    facts = read_facts()
    for number, fact in enumerate(facts):
        for index, step in enumerate(fact.steps):
            text = step.text.replace("{A}", "55").replace("{database}", "[prove]")
            (tmp_path / f"{number}_{index}.sql").write_text(text)
    (tmp_path / "wrong.sql").write_text("SELECT FROM WHERE")

    maxdop = Path(sys.executable).with_name("maxdop")
    command = [maxdop, "--check", "--parser-version", "2022", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    refused = [line for line in done.stderr.splitlines() if "could not be parsed" in line]

    assert len(refused) == 1
    assert "wrong.sql" in refused[0]
    assert len({fact.question for fact in facts}) == len(facts) > 40
    assert [fact.question for fact in facts if None not in fact.answers or not fact.steps] == []
