"""`duesweep errors …`: what failed is listed, replayed once, put back or discarded."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from duesweep.cli.app import main
from duesweep.core.headers import json as headers_json
from duesweep.testing.builders import delayed_row
from support.endpoint import Endpoint


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Duesweep = Callable[..., Run]


@pytest.fixture
def duesweep(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Duesweep:
    """Runs a command in this process, on the endpoint; Java is out of reach."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    def run(*arguments: str) -> Run:
        file = endpoint.folder / "duesweep.toml"
        capsys.readouterr()
        code = main([*arguments, "--config", str(file)])
        return Run(code, *capsys.readouterr())

    return run


def _fail(endpoint: Endpoint, duesweep: Duesweep, *rows: Any) -> list[str]:
    """Sweep messages whose queues are missing, so that they are exhausted at once; their keys."""
    endpoint.config_file(retry__max_attempts=1)
    keys = [row.key for row in endpoint.load(rows)]
    assert duesweep("sweep").code == 3
    assert endpoint.waiting() == []
    return keys


def test_failed_messages_arrive_once_when_their_queue_is_there(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Shipping")
    due = endpoint.due_in(-60)
    rows = [delayed_row("Billing", due=due, body=b"\xff\x00%d" % n) for n in range(5)]
    _fail(endpoint, duesweep, *rows)
    (group,) = duesweep("errors", "list", "--json").document["groups"]
    endpoint.create_queue("Billing")

    first = duesweep("errors", "replay", "--group", group["group"], "--reason", "up", "--yes")
    second = duesweep("errors", "replay", "--group", group["group"], "--reason", "up", "--yes")

    assert (first.code, first.err) == (0, "")
    assert first.out.splitlines()[-1].startswith("Replayed 5 errors by command ")
    assert second.code == 0
    assert second.out == "Replayed 0 errors.\n"
    arrived = endpoint.queue_rows("Billing")
    assert sorted((row.headers, row.body) for row in arrived) == sorted(
        (headers_json.remove_forward_destination(row.headers), row.body) for row in rows
    )
