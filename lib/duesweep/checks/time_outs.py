"""What is to be said of the time-outs that PostgreSQL's settings give a role's sessions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.checks.finding import Check, Finding, ok, warning

# Where a setting comes from that a session, or whoever opened it, has set for itself.
_OWN_SOURCES = {"session", "client"}


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A time-out as duesweep's session has it, 0 for none; `source` is where it comes from, as
    pg_settings calls it. `default_milliseconds` is what it is for a session that sets none, and
    `origin` for whom that was set.
    """

    name: str
    milliseconds: int
    source: str
    default_milliseconds: int
    origin: str


def time_out_findings(setting: str, time_outs: Sequence[TimeOut]) -> Iterator[Finding]:
    """What was set for the role's sessions, and whether duesweep's are free of it."""
    check = Check.SESSION_TIME_OUTS
    kept = [each for each in time_outs if each.milliseconds and each.source not in _OWN_SOURCES]
    if kept:
        found = ", ".join(f"{each.name} {each.milliseconds:,} ms" for each in kept)
        yield warning(
            check,
            setting,
            f"duesweep's own session has {found} from somewhere else, although it sets its own: "
            "the server may end it in the middle of a sweep",
            f"Let {setting} lead to the server itself, or to a pool in session mode; or set these "
            "to 0 for this role (ALTER ROLE … SET …)",
        )
        return
    told = [each for each in time_outs if each.default_milliseconds]
    text = "Neither this role, nor its database, nor the server sets a time-out"
    if told:
        found = ", ".join(
            f"{each.name} {each.default_milliseconds:,} ms (for {each.origin})" for each in told
        )
        text = f"Set is {found}; duesweep's sessions set their own, so these do no harm"
    yield ok(check, setting, text)
