"""What is to be said of the time-outs that PostgreSQL's settings give a role's sessions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.doctor.finding import Check, Finding, ok, warning

# Where a setting comes from that a session, or whoever opened it, has set for itself.
_OWN_SOURCES = {"session", "client"}


@dataclass(frozen=True, slots=True)
class TimeOut:
    """A time-out as a session has it, 0 for none; `source` is where it comes from, as pg_settings
    calls it.
    """

    name: str
    milliseconds: int
    source: str

    def __str__(self) -> str:
        return f"{self.name} {self.milliseconds:,} ms (from: {self.source})"


def time_out_findings(
    setting: str, of_role: Sequence[TimeOut], own: Sequence[TimeOut]
) -> Iterator[Finding]:
    """What the role's settings say, and whether duesweep's sessions are free of it."""
    check = Check.SESSION_TIME_OUTS
    kept = [each for each in own if each.milliseconds and each.source not in _OWN_SOURCES]
    if kept:
        yield warning(
            check,
            setting,
            f"duesweep's own session has {', '.join(map(str, kept))}, although it sets another: "
            "the server may end it in the middle of a sweep",
            f"Let {setting} lead to the server itself, or to a pool in session mode; or set these "
            "to 0 for this role (ALTER ROLE … SET …)",
        )
        return
    found = [each for each in of_role if each.milliseconds]
    if found:
        text = (
            f"This role's sessions have {', '.join(map(str, found))}; duesweep's set their own "
            "over these, so they do no harm"
        )
    else:
        text = "Neither this role, nor its database, nor the server sets a time-out"
    yield ok(check, setting, text)
