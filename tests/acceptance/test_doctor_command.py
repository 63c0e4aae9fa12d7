"""The command `doctor`: its options, its table, and configurations that it refuses."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.address import quote_name
from support.commands import Ran
from support.diagnosis import diagnosed
from support.endpoint import Endpoint

OWN = '"public"."Sales.Orders"'
DROP_INDEX = 'DROP INDEX "Sales.Orders.Delayed_Due"'


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.having(retry__error_queue="error").set_up("Billing")


@pytest.fixture
def harmed(healthy: Endpoint) -> Endpoint:
    """An index is missing, and a role with a long name may do nothing."""
    healthy.execute(DROP_INDEX)
    database = quote_name(str(conninfo_to_dict(healthy.dsn)["dbname"]))
    healthy.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    dsn = healthy.server.role("n" * 30, f"CONNECT ON DATABASE {database}")
    return healthy.having(store__dsn=str(dsn))


def _doctor(endpoint: Endpoint, *options: str, **settings: object) -> Ran:
    return endpoint.run("doctor", "--no-spark", *options, **settings)


def _passed(endpoint: Endpoint, others: int) -> int:
    return len(diagnosed(endpoint.config_file()).document["findings"]) - others


def test_ignored_check_is_said_but_not_counted(healthy: Endpoint) -> None:
    healthy.execute(DROP_INDEX)

    found = diagnosed(healthy.config_file(), "--ignore", "table-index")

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("table-index")["severity"] == "ignored"


def test_table_begins_with_the_worst_and_says_what_to_do(healthy: Endpoint) -> None:
    healthy.execute(f"DROP TABLE {OWN}; {DROP_INDEX}")

    ran = _doctor(healthy, "--verbose")

    lines = ran.out.splitlines()
    firsts = [line.split(maxsplit=1)[0] for line in lines if line[:1].isalpha()]
    assert (ran.code, firsts[:3]) == (3, ["fault", "warning", "skipped"])
    assert firsts[3:-1] == ["ok"] * len(firsts[3:-1])
    assert any("→ CREATE INDEX CONCURRENTLY ON" in line for line in lines)
    assert lines[-1] == f"fault: 1, warning: 1, skipped: 1, {_passed(healthy, 3)} checks passed"


def test_no_line_is_cut_or_wrapped_in_a_pipe(harmed: Endpoint) -> None:
    findings = diagnosed(harmed.config_file()).document["findings"]

    ran = _doctor(harmed)

    lines = [line.strip() for line in ran.out.splitlines()]
    advice = [finding["advice"] for finding in findings if finding["advice"]]
    assert ran.code == 3
    assert max(map(len, advice)) > 100
    assert {f"→ {each}" for each in advice} <= set(lines)


def test_printed_statements_mend_the_findings(harmed: Endpoint) -> None:
    ran = _doctor(harmed, "--print-sql")

    statements = ran.out.splitlines()
    assert (ran.code, ran.err) == (3, "")
    assert len(set(statements)) == len(statements)
    assert sum("USAGE ON SCHEMA" in statement for statement in statements) == 1
    for statement in statements:
        harmed.execute(statement)
    assert diagnosed(harmed.config_file()).code == 0
    assert _doctor(harmed, "--print-sql") == Ran(0, "", "")


def test_finding_that_no_statement_mends_is_on_standard_error(healthy: Endpoint) -> None:
    healthy.execute(f"DROP TABLE {OWN}")

    ran = _doctor(healthy, "--print-sql")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err.startswith(f"duesweep: no statement mends table-exists of {OWN}: ")
    assert "Run the command `setup`" in ran.err
