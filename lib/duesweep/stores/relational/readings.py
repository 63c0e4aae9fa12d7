"""Readings of a server's clock beside this machine's."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from duesweep.checks.server import ClockReading

_READINGS = 3


def read_clock(server_time: Callable[[], datetime]) -> Sequence[ClockReading]:
    """Ask for the server's time a few times; the fastest answer is the most exact."""
    readings = []
    for _ in range(_READINGS):
        before = datetime.now(UTC)
        server = server_time()
        readings.append(ClockReading(server, before, datetime.now(UTC)))
    return readings
