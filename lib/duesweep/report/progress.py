"""The output while a sweep runs: a passing line, on a terminal only."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from duesweep.core.errors import StoreError
from duesweep.core.passing import passing_line
from duesweep.operations.endpoint import Endpoint
from duesweep.stores.base import DriverSession
from duesweep.stores.sweeps import SweepRun


@contextmanager
def sweeping_line(endpoint: Endpoint, run: SweepRun, found: int) -> Iterator[None]:
    """Show how many of the `found` messages the sweep has done, until the block ends."""
    began, opened, sessions = time.monotonic(), ExitStack(), list[DriverSession]()

    def text() -> str:
        # Only the line ends: the sweep itself reports the error.
        with suppress(StoreError):
            if not sessions:
                sessions.append(opened.enter_context(endpoint.context.store.open_driver()))
            batches, messages = sessions[0].sweeps.progress(run.sweep_id)
            rate = messages / (time.monotonic() - began)
            return (
                f"sweeping: {messages:,} of {found:,} messages, {batches:,} batches, "
                f"{rate:,.0f} messages/s"
            )
        return ""

    try:
        with passing_line(text):
            yield
    finally:
        with suppress(StoreError):
            opened.close()
