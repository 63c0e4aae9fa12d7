"""The command `doctor`: its options, its table, and configurations that it refuses."""

import pytest

from duesweep.cli.app import main
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


def test_ignored_check_that_there_is_not(capsys: Capture, healthy: Endpoint) -> None:
    file = str(healthy.config_file())

    assert main(["doctor", "--config", file, "--ignore", "table-indexes"]) == 2

    assert "did you mean table-index?" in capsys.readouterr().err


def test_table_begins_with_the_worst_and_says_what_to_do(
    capsys: Capture, healthy: Endpoint
) -> None:
    healthy.execute(f"DROP TABLE {OWN}")
    healthy.execute('DROP INDEX "Sales.Orders.Delayed_Due"')
    file = str(healthy.config_file(retry__error_queue="error"))
    capsys.readouterr()

    assert main(["doctor", "--no-spark", "--config", file]) == 3

    lines = capsys.readouterr().out.splitlines()
    firsts = [line.split(maxsplit=1)[0] for line in lines if line[:1].isalpha()]
    assert firsts[:3] == ["fault", "warning", "skipped"]
    assert firsts[3:-1] == ["ok"] * len(firsts[3:-1])
    assert any("→ CREATE INDEX CONCURRENTLY ON" in line for line in lines)
    assert lines[-1].startswith("fault: 1, warning: 1, skipped: 1, ok: ")
