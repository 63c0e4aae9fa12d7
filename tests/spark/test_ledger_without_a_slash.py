"""A ledger root without a slash, where no such catalog schema exists."""

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint


def test_root_without_a_slash_is_told_in_one_line(
    endpoint: Endpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    endpoint.set_up()
    endpoint.delay()
    file = endpoint.config_file(ledger__root="ledger", sweep__spark_from=0)
    capfd.readouterr()

    assert main(["sweep", "--config", str(file)]) == 2

    told = capfd.readouterr().err
    (sentence,) = [line for line in told.splitlines() if line.startswith("duesweep: ")]
    assert "ledger.root is 'ledger'" in sentence
    assert "write ./ledger for a folder" in sentence
    assert "\tat " not in told
    assert "JVM stacktrace" not in told
