"""The port of a watcher under many, slow or foreign clients."""

import http.client
import json
import socket
import threading
import time
from contextlib import closing
from http import HTTPStatus

import pytest

from duesweep.cli import port as ports
from duesweep.cli.port import FreshPage, Page, json_page, serving
from support.slow_clients import slow_clients
from support.waiting import until

LIVE = {"/live": lambda: json_page({"is_live": True})}


def _ask(port: int, path: str = "/live", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _handlers() -> int:
    return sum("process_request" in each.name for each in threading.enumerate())


def test_probe_is_answered_beside_300_slow_clients() -> None:
    with serving("127.0.0.1", 0, LIVE) as port, slow_clients(port):
        until(lambda: _handlers() >= 10)
        for _ in range(50):
            status, body = _ask(port)

            assert (status, json.loads(body)) == (200, {"is_live": True})
            assert _handlers() <= 40
    until(lambda: _handlers() == 0)


@pytest.mark.parametrize("sent", [b"", b"GET /live", b"GET /live HTTP/1.1\r\nHost: "])
def test_request_ends_as_a_whole_within_seconds(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "REQUEST_SECONDS", 1.0)
    with serving("127.0.0.1", 0, LIVE) as port:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(sent)
            while _goes_on(client) and time.monotonic() - began < 5:
                pass

    assert 0.9 < time.monotonic() - began < 4


def _goes_on(client: socket.socket) -> bool:
    """Whether the connection takes another byte."""
    client.settimeout(0.2)
    try:
        if not client.recv(1):
            return False
    except TimeoutError:
        pass
    except ConnectionError:
        return False
    try:
        client.sendall(b"a")
    except ConnectionError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "status"),
    [
        *(("localhost", 200), ("127.0.0.1:80", 200), ("LOCALHOST:1", 200), ("[::1]:1", 200)),
        *(("evil.example", 421), ("127.0.0.1.evil.example:80", 421), ("evil.example:80", 421)),
    ],
)
def test_port_of_this_machine_answers_under_its_own_names_only(name: str, status: int) -> None:
    with serving("127.0.0.1", 0, LIVE) as port:
        assert _ask(port, Host=name)[0] == status


def test_port_for_the_network_answers_under_any_name() -> None:
    with serving("0.0.0.0", 0, LIVE) as port:
        assert _ask(port, Host="watcher.example")[0] == 200


def test_report_that_takes_long_holds_no_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end, made = threading.Event(), []

    def make(_: FreshPage) -> Page:
        made.append(1)
        assert may_end.wait(60)
        return Page(b"report", "text/html")

    monkeypatch.setattr(FreshPage, "_make", make)
    monkeypatch.setattr(ports, "_REPORT_SECONDS", 0.1)
    with serving("127.0.0.1", 0, {"/": FreshPage(()), **LIVE}) as port:
        assert _ask(port, "/")[0] == HTTPStatus.SERVICE_UNAVAILABLE
        assert b"is being made" in _ask(port, "/")[1]
        assert _ask(port)[0] == 200
        may_end.set()
        until(lambda: _ask(port, "/") == (200, b"report"))

    assert made == [1]


@pytest.mark.parametrize(("query", "refresh"), [("", "30"), ("?still", None)])
def test_page_that_refreshes_itself_leaves_a_reader_time_who_asks_for_it(
    query: str, refresh: str | None
) -> None:
    pages = {"/": lambda: Page(b"<p>", "text/html", refresh_seconds=30)}
    with serving("127.0.0.1", 0, pages) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with closing(connection):
            connection.request("GET", f"/{query}")
            answer = connection.getresponse()

            assert (answer.status, answer.headers["Refresh"], answer.read()) == (
                200,
                refresh,
                b"<p>",
            )
