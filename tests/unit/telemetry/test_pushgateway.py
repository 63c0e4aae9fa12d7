"""Metrics that are pushed, to a server that stands for the Pushgateway."""

import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duesweep.telemetry.pushgateway import Pushgateway
from duesweep.telemetry.tell import tell
from support.ports import free_port
from support.telemetry import AT, SOURCE, run

_LATER = AT + timedelta(minutes=1)


class _Gateway(BaseHTTPRequestHandler):
    """Keeps what is PUT for each group, and shows all of it."""

    groups: dict[str, str]
    asked: list[tuple[str, str | None]]
    answer: int

    def do_GET(self) -> None:
        self._reply("".join(self.groups.values()).encode())

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.answer == 200:
            self.groups[self.path] = body
        self._reply(b"")

    def _reply(self, body: bytes) -> None:
        self.asked.append((self.command, self.headers["Authorization"]))
        self.send_response(200 if self.command == "GET" else self.answer)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def _gateway(answer: int = 200) -> Iterator[tuple[str, type[_Gateway]]]:
    state: dict[str, Any] = {"groups": {}, "asked": [], "answer": answer}
    handler = type("_Handler", (_Gateway,), state)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def _figures(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {sample.name: sample.value for family in families for sample in family.samples}


def _group_of(path: str) -> tuple[str, str]:
    """Job and source of a group's path; a value with slashes is base64."""
    _, _, key, job, label, value = path.split("/")
    assert (key, label) == ("job", "source@base64")
    return job, b64decode(unquote(value), altchars=b"-_").decode()


def test_run_replaces_its_sources_group_and_goes_on_from_it() -> None:
    with _gateway() as (host, gateway):
        output = Pushgateway(f"http://{host}/")
        assert list(tell([run()], [output])) == []
        assert list(tell([run(4, at=_LATER, report=None, due=None)], [output])) == []

        ((path, text),) = gateway.groups.items()
    assert _group_of(path) == ("duesweep", SOURCE)
    figures = _figures(text)
    assert figures["duesweep_runs_total"] == 2
    assert figures["duesweep_dispatched_messages_total"] == 7
    assert figures["duesweep_last_success_timestamp_seconds"] == AT.timestamp()
    assert "duesweep_due_messages" not in figures


def test_user_and_password_go_as_a_header_and_are_never_shown() -> None:
    with _gateway() as (host, gateway):
        output = Pushgateway(f"http://sweeper:p%40ss@{host}")
        assert list(tell([run()], [output])) == []

        sent = {b64decode(str(each).removeprefix("Basic ")) for _, each in gateway.asked}
    assert sent == {b"sweeper:p@ss"}
    assert "p%40ss" not in f"{output} {output!r}"


def test_gateway_that_refuses_is_one_problem() -> None:
    with _gateway(answer=400) as (host, _):
        (problem,) = tell([run()], [Pushgateway(f"http://sweeper:secret@{host}")])

    assert problem.text == (
        f"The Pushgateway at http://{host} did not get the metrics of this run: "
        "it answered 400 Bad Request"
    )


def test_gateway_that_is_down_is_one_problem() -> None:
    port = free_port()

    (problem,) = tell([run()], [Pushgateway(f"http://127.0.0.1:{port}")])

    assert "Connection refused" in problem.text


@pytest.mark.parametrize("shown", ["no { metrics", "\x00"])
def test_gateway_whose_metrics_cannot_be_read_gets_new_ones(shown: str) -> None:
    with _gateway() as (host, gateway):
        gateway.groups["other"] = shown
        (problem,) = tell([run()], [Pushgateway(f"http://{host}")])

        assert "its counters begin anew" in str(problem)
        assert len(gateway.groups) == 2
