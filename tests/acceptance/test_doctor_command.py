"""The command `doctor`: its options, its table, and configurations that it refuses."""

from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.cli.app import main
from duesweep.core.address import quote_name
from support.diagnosis import diagnosed
from support.endpoint import Endpoint

OWN = '"public"."Sales.Orders"'

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def healthy(endpoint: Endpoint) -> Endpoint:
    return endpoint.set_up("Billing", retry__error_queue="error")


def test_configuration_that_cannot_be_read_is_2(capsys: Capture, healthy: Endpoint) -> None:
    file = str(healthy.config_file(retry__max_atempts=3))

    assert main(["doctor", "--no-spark", "--config", file]) == 2

    assert "did you mean retry.max_attempts?" in capsys.readouterr().err


def test_ignored_check_is_said_but_not_counted(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = healthy.config_file(retry__error_queue="error")

    found = diagnosed(capsys, file, "--ignore", "table-index")

    assert (found.code, found.to_mend()) == (0, {})
    assert found.of("table-index")["severity"] == "ignored"


def test_table_begins_with_the_worst_and_says_what_to_do(
    capsys: Capture, healthy: Endpoint
) -> None:
    healthy.execute(f"DROP TABLE {OWN}")
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = str(healthy.config_file(retry__error_queue="error"))
    capsys.readouterr()

    assert main(["doctor", "--no-spark", "--verbose", "--config", file]) == 3

    lines = capsys.readouterr().out.splitlines()
    firsts = [line.split(maxsplit=1)[0] for line in lines if line[:1].isalpha()]
    assert firsts[:3] == ["fault", "warning", "skipped"]
    assert firsts[3:-1] == ["ok"] * len(firsts[3:-1])
    assert any("→ CREATE INDEX CONCURRENTLY ON" in line for line in lines)
    passed = len(diagnosed(capsys, Path(file)).document["findings"]) - 3
    assert lines[-1] == f"fault: 1, warning: 1, skipped: 1, {passed} checks passed"


def test_passed_checks_are_one_line(capsys: Capture, healthy: Endpoint) -> None:
    file = healthy.config_file(retry__error_queue="error")
    passed = len(diagnosed(capsys, file).document["findings"]) - 1

    assert main(["doctor", "--no-spark", "--config", str(file)]) == 0

    first, _, last = capsys.readouterr().out.splitlines()
    assert first.startswith("skipped  spark-start  the Spark session")
    assert last == f"skipped: 1, {passed} checks passed"


def test_no_line_is_cut_or_wrapped_in_a_pipe(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = healthy.config_file(store__dsn=_newcomer(healthy), retry__error_queue="error")
    findings = diagnosed(capsys, file).document["findings"]

    assert main(["doctor", "--no-spark", "--config", str(file)]) == 3

    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    advice = [finding["advice"] for finding in findings if finding["advice"]]
    assert max(map(len, advice)) > 100
    for each in advice:
        assert f"→ {each}" in lines


def test_printed_statements_mend_the_findings(capsys: Capture, healthy: Endpoint) -> None:
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = healthy.config_file(store__dsn=_newcomer(healthy), retry__error_queue="error")

    assert main(["doctor", "--no-spark", "--print-sql", "--config", str(file)]) == 3

    output = capsys.readouterr()
    statements = output.out.splitlines()
    assert output.err == ""
    assert len(set(statements)) == len(statements)
    assert sum("USAGE ON SCHEMA" in statement for statement in statements) == 1
    for statement in statements:
        healthy.execute(statement)
    assert diagnosed(capsys, file).code == 0
    assert main(["doctor", "--no-spark", "--print-sql", "--config", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


def test_finding_that_no_statement_mends_is_on_standard_error(
    capsys: Capture, healthy: Endpoint
) -> None:
    healthy.execute(f"DROP TABLE {OWN}")
    file = str(healthy.config_file(retry__error_queue="error"))
    capsys.readouterr()

    assert main(["doctor", "--no-spark", "--print-sql", "--config", file]) == 3

    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"duesweep: no statement mends table-exists of {OWN}: ")
    assert "Run the command `setup`" in output.err


def test_table_of_the_ledger_that_cannot_be_written_is_a_fault(
    capsys: Capture, healthy: Endpoint
) -> None:
    root = healthy.folder / "ledger"
    (root / "tombstones").mkdir(parents=True)
    (root / "tombstones" / "_delta_log").symlink_to("/proc/tty")
    file = healthy.config_file(retry__error_queue="error")

    assert diagnosed(capsys, file).to_mend() == {("ledger", str(root)): "fault"}


def _newcomer(healthy: Endpoint) -> str:
    """The dsn of a role that may do nothing, with a long name."""
    database = quote_name(str(conninfo_to_dict(healthy.dsn)["dbname"]))
    healthy.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    return str(healthy.server.role("n" * 30, f"CONNECT ON DATABASE {database}"))
