"""Findings on any server: whether it answers, and its clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.checks.finding import Check, Finding, capitalized, fault, ok, warning
from duesweep.core.errors import DuesweepError, OdbcDriverError

# No message is early or late by this machine's clock: it is only for logs and fault headers.
_SKEW = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The server's clock, and this machine's before and after the question. All have a zone."""

    server: datetime
    before: datetime
    after: datetime

    @property
    def round_trip(self) -> timedelta:
        """How long the answer took."""
        return self.after - self.before

    @property
    def skew(self) -> timedelta:
        """How far the server is ahead, if it answered in the middle of the round trip."""
        return self.server - (self.before + self.round_trip / 2)


def reachable(setting: str, version: str, readings: Sequence[ClockReading]) -> Finding:
    """The server answers."""
    took = min(reading.round_trip for reading in readings) / timedelta(milliseconds=1)
    text = f"{version} answers within {max(took, 0.1):.1f} ms"
    return ok(Check.SERVER_REACHABLE, setting, text)


def unreachable(setting: str, error: DuesweepError) -> Finding:
    """The server does not answer, or breaks off; or there is no ODBC driver to ask it with."""
    if isinstance(error, OdbcDriverError):
        advice = capitalized(error.advice or "install it")
        return fault(Check.DRIVER_IMPORT, setting, error.text, advice)
    advice = error.advice or (
        "check that the server runs, that this machine and every executor can connect to it, and "
        f"that {setting} is right"
    )
    return fault(
        Check.SERVER_REACHABLE,
        setting,
        error.text,
        f"{capitalized(advice)}; checks that depend on it were not made",
    )


def clock_skew(setting: str, readings: Sequence[ClockReading]) -> Finding:
    """The difference of the clocks, as exactly as the round trip allows."""
    best = min(readings, key=lambda reading: reading.round_trip)
    seconds = best.skew / timedelta(seconds=1)
    if abs(best.skew) - best.round_trip / 2 <= _SKEW:
        text = f"This machine's clock and the server's differ by {abs(seconds):.1f} s"
        return ok(Check.CLOCK_SKEW, setting, text)
    where = "ahead of" if seconds > 0 else "behind"
    return warning(
        Check.CLOCK_SKEW,
        setting,
        f"The server's clock is {abs(seconds):,.1f} s {where} this machine's. Only the server's "
        "decides what is due, but logs and the times in error queues are wrong by as much",
        "Synchronise both machines by NTP",
    )
