"""Findings on the time-outs that PostgreSQL's settings give a role's sessions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.checks.finding import Check, Finding, ok, warning

# The sources of settings that a session, or its connection string, sets for itself.
_OWN_SOURCES = {"session", "client"}


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A time-out of duesweep's session, 0 for none. `source` is where it comes from, as pg_settings
    calls it. `default_milliseconds` is the value for a session that sets none, and `origin` is for
    whom that value was set.
    """

    name: str
    milliseconds: int
    source: str
    default_milliseconds: int
    origin: str


def time_out_findings(setting: str, time_outs: Sequence[TimeOut]) -> Iterator[Finding]:
    """Which time-outs are set for the role, and whether they apply to duesweep's sessions."""
    check = Check.SESSION_TIME_OUTS
    kept = [each for each in time_outs if each.milliseconds and each.source not in _OWN_SOURCES]
    if kept:
        found = ", ".join(f"{each.name} {each.milliseconds:,} ms" for each in kept)
        yield warning(
            check,
            setting,
            f"duesweep sets its own time-outs, but its session has {found} from elsewhere: the "
            "server may end the session in the middle of a sweep",
            f"Set {setting} to the server itself, or to a pool in session mode; or set these "
            "time-outs to 0 for this role (ALTER ROLE … SET …)",
        )
        return
    told = [each for each in time_outs if each.default_milliseconds]
    text = "Neither this role, nor its database, nor the server sets a time-out"
    if told:
        found = ", ".join(
            f"{each.name} {each.default_milliseconds:,} ms (for {each.origin})" for each in told
        )
        text = f"{found}; duesweep's sessions set their own, so these do no harm"
    yield ok(check, setting, text)
