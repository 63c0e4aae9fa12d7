"""What is to be said of any server: whether it answers, and its clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from duesweep.checks.finding import Check, Finding, capitalized, fault, ok, warning
from duesweep.errors import DuesweepError, OdbcDriverError

# Nothing is early or late by this machine's clock; it only stamps logs and fault headers.
_SKEW = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The server's clock, and this machine's before and after the question; all aware."""

    server: datetime
    before: datetime
    after: datetime

    @property
    def round_trip(self) -> timedelta:
        """How long the answer took."""
        return self.after - self.before

    @property
    def skew(self) -> timedelta:
        """How far the server is ahead, the answer taken to be from the middle."""
        return self.server - (self.before + self.round_trip / 2)


def reachable(setting: str, version: str, readings: Sequence[ClockReading]) -> Finding:
    """The server answers."""
    took = min(reading.round_trip for reading in readings) / timedelta(milliseconds=1)
    text = f"{version} answers within {max(took, 0.1):.1f} ms"
    return ok(Check.SERVER_REACHABLE, setting, text)


def unreachable(setting: str, error: DuesweepError) -> Finding:
    """It does not, or not to the end; or it was never asked, for want of an ODBC driver."""
    if isinstance(error, OdbcDriverError):
        return fault(
            Check.DRIVER_IMPORT,
            setting,
            error.text,
            f"{capitalized(error.advice or 'install it')}; Microsoft's driver loads unixODBC and "
            "Kerberos from the machine (Debian, Ubuntu: apt-get install libodbc2 libgssapi-krb5-2)",
        )
    advice = error.advice or (
        "see that the server runs, that this machine and every executor may connect to it, and "
        f"that {setting} names it"
    )
    return fault(
        Check.SERVER_REACHABLE,
        setting,
        error.text,
        f"{capitalized(advice)}; what else depends on it was not looked at",
    )


def clock_skew(setting: str, readings: Sequence[ClockReading]) -> Finding:
    """The difference of the clocks, as far as the round trip lets it be known."""
    best = min(readings, key=lambda reading: reading.round_trip)
    seconds = best.skew / timedelta(seconds=1)
    if abs(best.skew) - best.round_trip / 2 <= _SKEW:
        text = f"This machine's clock and the server's differ by {abs(seconds):.1f} s"
        return ok(Check.CLOCK_SKEW, setting, text)
    where = "ahead of" if seconds > 0 else "behind"
    return warning(
        Check.CLOCK_SKEW,
        setting,
        f"The server's clock is {abs(seconds):,.1f} s {where} this machine's. What is due is "
        "decided by the server's alone; logs and the times in error queues are off by as much",
        "Let both machines follow NTP",
    )
