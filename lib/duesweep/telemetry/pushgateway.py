"""Prometheus's Pushgateway, for runs that end before anybody could scrape them."""

import urllib.request
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from prometheus_client import push_to_gateway

from duesweep.telemetry.definitions import LABEL
from duesweep.telemetry.figures import Figures
from duesweep.telemetry.prometheus import figures_in, metrics_after
from duesweep.telemetry.run import Run

JOB = "duesweep"
_PATIENCE_SECONDS = 5
# It shows what everybody pushed.
_MOST_BYTES = 50_000_000

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Pushgateway:
    """A group for each source: job `duesweep`, and `source`. `url` may hold user and password."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        return f"The Pushgateway at {self._address}"

    def alone(self) -> AbstractContextManager[None]:
        """It has no locks: of two runs of one source that end at once, one may not be counted."""
        return nullcontext()

    def read(self) -> Mapping[str, Figures]:
        """What former runs left. Raises `OSError`, `HTTPException`, and `ValueError` for another
        format.
        """
        with self._open("GET", f"{self._address}/metrics", timeout=_PATIENCE_SECONDS) as answer:
            text = answer.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it holds more than {_MOST_BYTES:,} bytes of metrics")
        return figures_in(text.decode())

    def write(self, former: Mapping[str, Figures], runs: Sequence[Run]) -> None:
        """Replace each source's group as a whole, so that nothing stale stays in it. Raises
        `OSError` and `HTTPException`.
        """
        for run in runs:
            push_to_gateway(
                self._address,
                job=JOB,
                registry=metrics_after({run.source: former.get(run.source, {})}, [run]).registry(),
                grouping_key={LABEL: run.source},
                timeout=_PATIENCE_SECONDS,
                handler=self._send,
            )

    @property
    def _address(self) -> str:
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    @property
    def _authorisation(self) -> str | None:
        user, at, _ = urlsplit(self.url).netloc.rpartition("@")
        if not at:
            return None
        name, _, password = user.partition(":")
        pair = f"{unquote(name)}:{unquote(password)}".encode()
        return f"Basic {b64encode(pair).decode()}"

    def _open(
        self,
        method: str,
        url: str,
        *,
        timeout: float | None,
        headers: Headers = (),
        data: bytes | None = None,
    ) -> Any:
        """The answer. Raises for any that is not good."""
        request = urllib.request.Request(url, data, dict(headers), method=method)
        if self._authorisation:
            # Not for the server to which this one may redirect.
            request.add_unredirected_header("Authorization", self._authorisation)
        return urllib.request.urlopen(request, timeout=timeout)

    def _send(  # noqa: PLR0917 - what prometheus-client's handlers take
        self, url: str, method: str, timeout: float | None, headers: Headers, data: bytes
    ) -> Callable[[], None]:
        return lambda: self._open(method, url, timeout=timeout, headers=headers, data=data).close()
