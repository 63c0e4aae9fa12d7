"""Metrics that are pushed, to a server that stands for the Pushgateway."""

import re
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import unquote

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from duesweep.telemetry.pushgateway import Pushgateway
from duesweep.telemetry.tell import tell
from support.ports import free_port
from support.telemetry import AT, SOURCE, run

_LATER = AT + timedelta(minutes=1)


@dataclass
class _Gateway:
    """Keeps what is PUT for each group, unless its `answer` refuses it, and shows all of it."""

    host: str
    answer: str = "200 OK"
    groups: dict[str, str] = field(default_factory=dict)
    credentials: list[str] = field(default_factory=list)

    def reply(self, request: Request) -> Response:
        self.credentials.append(request.headers.get("Authorization", ""))
        if request.method == "GET":
            return Response("".join(self.groups.values()))
        if self.answer == "200 OK":
            self.groups[request.environ["RAW_URI"]] = request.get_data(as_text=True)
        return Response(status=self.answer)


@pytest.fixture
def gateway(httpserver: HTTPServer) -> _Gateway:
    gateway = _Gateway(f"{httpserver.host}:{httpserver.port}")
    httpserver.expect_request(re.compile(".*")).respond_with_handler(gateway.reply)
    return gateway


def _figures(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def _group_of(path: str) -> tuple[str, str]:
    """Job and source of a group's path; a value with slashes is base64."""
    _, _, key, job, label, value = path.split("/")
    assert (key, label) == ("job", "source@base64")
    return job, b64decode(unquote(value), altchars=b"-_").decode()


def test_run_replaces_its_sources_group_and_goes_on_from_it(gateway: _Gateway) -> None:
    output = Pushgateway(f"http://{gateway.host}/")
    assert list(tell([run()], [output])) == []
    assert list(tell([run(4, at=_LATER, report=None, due=None)], [output])) == []

    ((path, text),) = gateway.groups.items()
    assert _group_of(path) == ("duesweep", SOURCE)
    figures = _figures(text)
    assert figures["duesweep_runs_total"] == 2
    assert figures["duesweep_dispatched_messages_total"] == 7
    assert figures["duesweep_last_success_timestamp_seconds"] == AT.timestamp()
    assert "duesweep_due_messages" not in figures


def test_user_and_password_go_as_a_header_and_are_never_shown(gateway: _Gateway) -> None:
    output = Pushgateway(f"http://sweeper:p%40ss@{gateway.host}")
    assert list(tell([run()], [output])) == []

    sent = {b64decode(each.removeprefix("Basic ")) for each in gateway.credentials}
    assert sent == {b"sweeper:p@ss"}
    assert "p%40ss" not in f"{output} {output!r}"


def test_gateway_that_refuses_is_one_problem(gateway: _Gateway) -> None:
    gateway.answer = "400 Bad Request"

    (problem,) = tell([run()], [Pushgateway(f"http://sweeper:secret@{gateway.host}")])

    assert problem.text == (
        f"The Pushgateway at http://{gateway.host} did not get the metrics of this run: "
        "it answered 400 Bad Request"
    )


def test_gateway_that_is_down_is_one_problem() -> None:
    port = free_port()

    (problem,) = tell([run()], [Pushgateway(f"http://127.0.0.1:{port}")])

    assert "Connection refused" in problem.text


@pytest.mark.parametrize("shown", ["no { metrics", "\x00"])
def test_gateway_whose_metrics_cannot_be_read_gets_new_ones(gateway: _Gateway, shown: str) -> None:
    gateway.groups["other"] = shown
    (problem,) = tell([run()], [Pushgateway(f"http://{gateway.host}")])

    assert "its counters begin anew" in str(problem)
    assert len(gateway.groups) == 2
