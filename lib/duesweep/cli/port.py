"""The port of a watcher: pages for machines and people, over HTTP and without a password.

By default it listens on this machine only; each client that can reach it can read it.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EADDRINUSE
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structlog
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from duesweep.core.errors import ConfigError
from duesweep.operations.duesweep import Duesweep
from duesweep.operations.health import Health
from duesweep.report.metrics import Metrics, exposed_text

_log = structlog.get_logger(__name__)

_SILENCE_SECONDS = 10
# Many may look at the report, and making it asks all services.
_FRESH_SECONDS = 10.0
# How often the report asks for itself again.
_REFRESH_SECONDS = 30
_DAYS = 7


@dataclass(frozen=True, slots=True)
class Page:
    """The answer of a path. `kind` is the content's type."""

    body: bytes
    kind: str
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]


def json_page(document: object, status: HTTPStatus = HTTPStatus.OK) -> Page:
    """A page of JSON."""
    return Page(json.dumps(document).encode() + b"\n", "application/json", status)


def pages_of(
    endpoints: Sequence[Duesweep], healths: Sequence[Health], counted: Sequence[Metrics]
) -> Pages:
    """The pages of a watcher. A reload may put other endpoints into the sequence."""

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


class FreshPage:
    """The report of these endpoints, at most ten seconds old. For several threads."""

    def __init__(self, endpoints: Sequence[Duesweep]) -> None:
        self._endpoints = endpoints
        self._lock = threading.Lock()
        self._page: Page | None = None
        self._made = 0.0

    def __call__(self) -> Page:
        """The page. Raises nothing of a service's: unreadable parts are named on the page."""
        with self._lock:
            if self._page is None or time.monotonic() - self._made > _FRESH_SECONDS:
                self._page = self._make()
                self._made = time.monotonic()
            return self._page

    def _make(self) -> Page:
        from duesweep.report.page import render  # noqa: PLC0415 - few look at it

        facts = [each.status(days=_DAYS) for each in self._endpoints]
        page = render(facts, datetime.now(UTC), refresh_seconds=_REFRESH_SECONDS)
        return Page(page.encode(), "text/html; charset=utf-8")


@contextmanager
def serving(host: str, port: int, pages: Pages) -> Iterator[int]:
    """Serve pages within the block, in a thread; yields the port, which is a free one for 0.
    Raises `ConfigError` if the port cannot be had.
    """
    handler = type("_Handler", (_Handler,), {"pages": pages})
    try:
        server = _Server((host, port), handler)
    except OSError as error:
        raise ConfigError(
            f"Port {port} of {host} {_fault_of(error)}",
            advice="give another one with --port, or end what uses it",
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="duesweep port", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - its signature
        """Nothing of a client that hung up; anything else is a line of the log."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            _log.exception("page_failed")


def _fault_of(error: OSError) -> str:
    return "is in use" if error.errno == EADDRINUSE else f"cannot be listened on: {error}"


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    # A client that connects and says nothing is dropped.
    timeout = _SILENCE_SECONDS
    server_version, sys_version = "duesweep", ""

    def do_GET(self) -> None:
        page = self.pages.get(self.path.partition("?")[0])
        if page is None:
            self.send_error(HTTPStatus.NOT_FOUND, f"There is: {' '.join(sorted(self.pages))}")
            return
        self._answer(page())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, page: Page) -> None:
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def log_message(self, *_: Any) -> None:
        """Nothing: a probe each second would fill the log."""
