"""Pauses on SQL Server, where a claim key is a Due that paused and other messages may share."""

import json

import pytest

from duesweep.cli.app import main
from support.sqlserver_server import SqlServerEndpoint

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("pattern", ["Billing", "B*g"])
def test_messages_that_share_a_due_with_paused_ones_arrive(
    capsys: Captured, sqlserver_endpoint: SqlServerEndpoint, pattern: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(12, ["Billing", "Shipping"])
    file = str(endpoint.config_file())
    assert main(["pause", pattern, "--reason", "why", "--config", file]) == 0
    capsys.readouterr()

    assert main(["sweep", "--json", "--config", file]) == 0

    swept = json.loads(capsys.readouterr().out)
    assert (swept["outcome"], swept["dispatched"]) == ("done", 6)
    assert swept["found"] == 6 + swept["held"]
    assert (len(endpoint.waiting()), endpoint.attempts()) == (6, {})
