"""The port of a watcher: pages for machines and people, over HTTP and without a password.

By default it listens on this machine only; each client that can reach it can read it. Clients that
are slow or many take neither descriptors nor answers from deliveries and probes: a new connection
replaces the oldest one, and each has a few seconds from its first byte to its last.
"""

import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EADDRINUSE
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from typing import Any, ClassVar

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from duesweep.core import logs
from duesweep.core.errors import ConfigError
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.health import Health
from duesweep.report.metrics import Metrics, exposed_text

_MOST_CONNECTIONS = 16
# For a whole request and its answer.
REQUEST_SECONDS = 5.0
# A client waits this long for a new report, and at most this many do.
_REPORT_SECONDS = 4.0
_MOST_WAITING = 8
# Many may look at the report, and making it asks all services.
_FRESH_SECONDS = 10.0
# How often the report asks for itself again.
_REFRESH_SECONDS = 30
_DAYS = 7
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a path. `kind` is the content's type. A browser asks again after
    `refresh_seconds`, unless its reader wants to have time: with the query `still`.
    """

    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK
    refresh_seconds: int | None = None


Pages = Mapping[str, Callable[[], Page]]


def json_page(document: object, status: HTTPStatus = HTTPStatus.OK) -> Page:
    """A page of JSON."""
    return Page(json.dumps(document).encode() + b"\n", "application/json", status)


def pages_of(
    endpoints: Sequence[Endpoint], healths: Sequence[Health], counted: Sequence[Metrics]
) -> Pages:
    """The pages of a watcher."""

    def health() -> Page:
        is_well = all(each.is_well for each in healths)
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        sources = [each.document() for each in healths]
        return json_page({"is_well": is_well, "sources": sources}, status)

    return {
        "/": FreshPage(endpoints),
        "/health": health,
        "/live": lambda: json_page({"is_live": True}),
        "/metrics": lambda: Page(exposed_text(counted), CONTENT_TYPE_PLAIN_0_0_4),
    }


_LATER = Page(
    b"<!doctype html><html lang=en><meta charset=utf-8><title>duesweep</title>"
    b"<p>The report is being made. This page asks again.",
    "text/html; charset=utf-8",
    HTTPStatus.SERVICE_UNAVAILABLE,
    refresh_seconds=3,
)


class FreshPage:
    """The report of these endpoints, at most ten seconds old. For several threads: one makes it,
    however long the services take, and clients wait a few seconds for it.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._lock = threading.Lock()
        self._waiting = threading.Semaphore(_MOST_WAITING)
        self._page: Future[Page] | None = None
        self._made = 0.0

    def __call__(self) -> Page:
        """The page, or one that asks again. Raises nothing of a service's: unreadable parts are
        named on the page.
        """
        page = self._fresh()
        if page.done():
            return page.result()
        if not self._waiting.acquire(blocking=False):
            return _LATER
        try:
            return page.result(_REPORT_SECONDS)
        except FutureTimeoutError:
            return _LATER
        finally:
            self._waiting.release()

    def _fresh(self) -> "Future[Page]":
        with self._lock:
            page = self._page
            if page is not None and page.done():
                is_old = time.monotonic() - self._made > _FRESH_SECONDS
                page = None if is_old or page.exception() else page
            if page is None:
                page = self._page = Future()
                make = partial(self._make_into, page)
                threading.Thread(target=make, name="duesweep report", daemon=True).start()
            return page

    def _make_into(self, page: "Future[Page]") -> None:
        try:
            made = self._make()
        except BaseException as error:  # noqa: BLE001 - each client that waits for the page gets it
            page.set_exception(error)
        else:
            self._made = time.monotonic()
            page.set_result(made)

    def _make(self) -> Page:
        # Few look at it.
        from duesweep.operations.status import status  # noqa: PLC0415
        from duesweep.report.page import render  # noqa: PLC0415

        facts = [status(each, days=_DAYS) for each in self._endpoints]
        page = render(facts, datetime.now(UTC), refresh_seconds=_REFRESH_SECONDS)
        kind = "text/html; charset=utf-8"
        return Page(page.encode(), kind, refresh_seconds=_REFRESH_SECONDS)


@contextmanager
def serving(host: str, port: int, pages: Pages) -> Iterator[int]:
    """Serve pages within the block, in a thread; yields the port, which is a free one for 0. Raises
    `ConfigError` if the port cannot be had.
    """
    own = {"pages": pages, "own_names": _own_names(host), "timeout": REQUEST_SECONDS}
    handler = type("_Handler", (_Handler,), own)
    try:
        server = _Server((host, port), handler)
    except OSError as error:
        in_use = error.errno == EADDRINUSE
        raise ConfigError(
            f"Port {port} of {host} {'is in use' if in_use else f'cannot be listened on: {error}'}",
            advice="give another one with --port, or end what uses it",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="duesweep port", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def _own_names(host: str) -> Collection[str]:
    """The names under which clients may ask, if this is this machine's own address; empty: any.
    Otherwise the page of another site could read the report, under a name that leads here.
    """
    try:
        is_own = ip_address(host).is_loopback
    except ValueError:
        is_own = host == "localhost"
    return {"localhost", "127.0.0.1", "[::1]", host} if is_own else ()


class _Server(ThreadingHTTPServer):
    """Holds a bounded number of connections, each for a bounded time."""

    request_queue_size = 128
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type["_Handler"]) -> None:
        self._guard = threading.Lock()
        # With the times of their ends, the oldest first.
        self._held: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """The next connection. Without a descriptor for it, all others end."""
        try:
            return super().get_request()
        except OSError:
            self._keep(0)
            # The next attempt comes at once.
            time.sleep(_PAUSE_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        self._keep(_MOST_CONNECTIONS - 1)
        with self._guard:
            self._held[request] = time.monotonic() + REQUEST_SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._held.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End the connections whose time is over. The server calls it twice a second or more."""
        now = time.monotonic()
        with self._guard:
            late = [request for request, end in self._held.items() if end < now]
        for request in late:
            self._end(request)

    def _keep(self, most: int) -> None:
        """End the oldest connections but this many."""
        with self._guard:
            oldest = list(self._held)[: max(0, len(self._held) - most)]
        for request in oldest:
            self._end(request)

    def _end(self, request: socket.socket) -> None:
        # Its thread notices that, and closes it.
        with self._guard:
            self._held.pop(request, None)
        with suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - its signature
        """Nothing of a client that hung up; anything else is a line of the log."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            logs.exception("page_failed")


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    own_names: Collection[str]
    timeout: ClassVar[float]
    server_version, sys_version = "duesweep", ""

    def do_GET(self) -> None:
        name = self.headers.get("Host", "").strip().lower()
        asked = re.sub(r":\d*$", "", name)
        if name and self.own_names and asked not in self.own_names:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "Ask for localhost or 127.0.0.1")
            return
        path, _, query = self.path.partition("?")
        page = self.pages.get(path)
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"There is: {' '.join(sorted(self.pages))}")
            return
        self._answer(page(), is_still=query == "still")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, page: Page, *, is_still: bool) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        if page.refresh_seconds is not None and not is_still:
            self.send_header("Refresh", str(page.refresh_seconds))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, *_: Any) -> None:
        """Nothing: a probe each second would fill the log."""
