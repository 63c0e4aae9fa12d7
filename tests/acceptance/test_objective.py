"""`slo.lateness_seconds`: exit code 5 where a sweep was late, and nothing worse happened."""

import json

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint

Captured = pytest.CaptureFixture[str]
SAID = "the objective slo.lateness_seconds"


def _sweep(endpoint: Endpoint, seconds: float) -> int:
    file = endpoint.config_file(slo__lateness_seconds=seconds)
    return main(["sweep", "--json", "--config", str(file)])


def test_message_that_is_later_than_the_objective(endpoint: Endpoint, capsys: Captured) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing", due_in_seconds=-60)

    assert _sweep(endpoint, 50) == 5

    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (document["outcome"], document["exit_code"], document["error"]) == ("done", 5, None)
    assert SAID in told.err


def test_message_that_is_less_late_than_the_objective(endpoint: Endpoint, capsys: Captured) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing", due_in_seconds=-60)

    assert _sweep(endpoint, 3_600) == 0
    assert SAID not in capsys.readouterr().err


def test_message_that_is_late_because_it_failed_before(
    endpoint: Endpoint, capsys: Captured
) -> None:
    endpoint.set_up()
    endpoint.delay("Billing", due_in_seconds=-60)
    assert _sweep(endpoint, 50) == 3
    endpoint.create_queue("Billing")
    endpoint.end_back_off()

    assert _sweep(endpoint, 50) == 0
    assert SAID not in capsys.readouterr().err


def test_failure_is_told_before_lateness(endpoint: Endpoint, capsys: Captured) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing", due_in_seconds=-60)
    endpoint.delay("Nowhere")

    assert _sweep(endpoint, 50) == 3
    assert SAID in capsys.readouterr().err
