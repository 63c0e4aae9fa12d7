"""Pauses: nothing goes to the destinations that fit a pattern, until they are resumed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime

from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.held_back import HeldBack, held_by_pause
from duesweep.core.policy import Pause
from duesweep.core.quantities import time_text
from duesweep.core.result import Listed
from duesweep.core.routing import fits_destination
from duesweep.core.times import Moment
from duesweep.operations.command import given_by
from duesweep.operations.endpoint import Endpoint
from duesweep.stores.base import OperatorDriver, operators_of

# Longer than any address, and short enough for an index.
_LONGEST_PATTERN = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPause(HeldBack):
    """A pause in force: its messages, and since when; `what` is its pattern."""

    paused_at: datetime
    given_by: str
    reason: str

    @classmethod
    def of(cls, pause: Pause) -> "ListedPause":
        """As the store has it."""
        return cls(
            **asdict(held_by_pause(pause)),
            paused_at=pause.paused_at,
            given_by=pause.given_by,
            reason=pause.reason,
        )


@dataclass(frozen=True, slots=True)
class Pauses(Listed):
    """The pauses in force."""

    source: str
    pauses: Sequence[ListedPause]

    def of(self, pattern: str) -> Sequence[ListedPause]:
        """The pause of just this pattern, if it is there."""
        return [one for one in self.pauses if one.what == pattern]

    def holding(self, pattern: str) -> Sequence[ListedPause]:
        """The pauses that hold destinations of this pattern."""
        return [one for one in self.pauses if fits_destination(pattern, one.what or "")]


@dataclass(frozen=True, slots=True)
class Resumed(Pauses):
    """The pauses that are left. `resumed`: there was one of this `pattern`."""

    resumed: bool
    exit_code: ExitCode
    pattern: str = field(repr=False)


def pause(
    endpoint: Endpoint, destination: str, *, reason: str, until: Moment | None = None
) -> Pauses:
    """Let no sweep deliver to a destination or pattern, `until` a time or until `resume`."""
    _refuse_unclear(destination, reason)
    with _opened(endpoint, "pause") as session:
        now = session.due.horizon().server_time
        end = None if until is None else until.at(now)
        if end is not None and end <= now:
            raise ConfigError(
                f"--until is {time_text(end)}, which is over; nothing was paused",
                advice="give a time to come, as in +2h",
            )
        session.people.pause(destination, end, given_by(), reason.strip())
        return Pauses(session.source, _listed(session))


def resume(endpoint: Endpoint, destination: str) -> Resumed:
    """End the pause of just this destination or pattern."""
    with _opened(endpoint, "resume") as session:
        resumed = session.people.resume(destination)
        code = ExitCode.DONE if resumed else ExitCode.MESSAGES_FAILED
        return Resumed(session.source, _listed(session), resumed, code, destination)


def paused(endpoint: Endpoint) -> Pauses:
    """The pauses in force."""
    with _opened(endpoint, "paused", is_reading=True) as session:
        return Pauses(session.source, _listed(session))


def _refuse_unclear(pattern: str, reason: str) -> None:
    if not reason.strip():
        raise ConfigError(
            "--reason is empty", advice="give a reason: colleagues see it in `paused` and `plan`"
        )
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        raise ConfigError(
            f"The destination has {len(pattern):,} characters",
            advice=f"give one with 1 to {_LONGEST_PATTERN}",
        )
    if pattern != pattern.strip():
        raise ConfigError(
            f"The destination {pattern!r} begins or ends with a blank",
            advice="give it without: SQL Server cannot tell the two apart",
        )


@contextmanager
def _opened(
    endpoint: Endpoint, command: str, *, is_reading: bool = False
) -> Iterator[OperatorDriver]:
    operators = operators_of(endpoint.context.store, f"the command `{command}`")
    with operators.open_driver() as session:
        if is_reading:
            session.check_reading()
        else:
            session.check()
        yield session


def _listed(session: OperatorDriver) -> Sequence[ListedPause]:
    return [ListedPause.of(one) for one in session.due.pauses()]
