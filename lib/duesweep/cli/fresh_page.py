"""The report page at a watcher's port, made when somebody asks for it."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from duesweep.fleet.members import Member
from duesweep.watch.server import Page

# Many may look at it, and making it asks all services.
_FRESH_SECONDS = 10.0
_DAYS = 7


class FreshPage:
    """The page of these endpoints, at most ten seconds old. For several threads."""

    def __init__(self, members: Sequence[Member]) -> None:
        self._members = members
        self._lock = threading.Lock()
        self._page: Page | None = None
        self._made = 0.0

    def __call__(self) -> Page:
        """The page. Raises nothing of a service's: what cannot be read is said on the page."""
        with self._lock:
            if self._page is None or time.monotonic() - self._made > _FRESH_SECONDS:
                self._page = self._make()
                self._made = time.monotonic()
            return self._page

    def _make(self) -> Page:
        from duesweep.operations.status import status  # noqa: PLC0415 - few look at it
        from duesweep.report.page import render  # noqa: PLC0415

        facts = [status(member.config, member.context, _DAYS) for member in self._members]
        return Page(render(facts, datetime.now(UTC)).encode(), "text/html; charset=utf-8")
