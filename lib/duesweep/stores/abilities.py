"""What a store and its sessions can do: less than their contract, or more."""

import inspect
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Protocol, runtime_checkable
from uuid import UUID

from duesweep.core.outcome import BatchResult
from duesweep.errors import ConfigError, Problem
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Claim, Horizon, SweepRun


@runtime_checkable
class HasInfrastructure(Protocol):
    """A store that creates what it needs. Another store expects it to exist already."""

    def set_up_infrastructure(self) -> None:
        """Create what the store needs and lacks, such as tables; part of the command `setup`."""
        ...


@runtime_checkable
class KnowsDestinations(Protocol):
    """A driver's session of a store that finds destinations without a look into messages. Both are
    bounded in number, the commonest first, without the empty ones. One that has to look into them
    after all says none.
    """

    def due_destinations(self, horizon: Horizon) -> Sequence[str]:
        """Where messages go that are eligible. Cheap: those due for the longest are enough."""
        ...

    def stored_destinations(self) -> Sequence[str]:
        """Where all stored messages go, whatever their Due. Asked where `due_destinations` gives
        cause to.
        """
        ...


@runtime_checkable
class NoticesTables(Protocol):
    """A driver's session that can tell what is wrong with its tables although sweeps work. The
    doctor finds that by itself.
    """

    def table_notices(self) -> Sequence[Problem]:
        """What is wrong, and what to do."""
        ...


@runtime_checkable
class KnowsNextDue(Protocol):
    """A driver's session of a store that finds cheaply when the next message comes due."""

    def next_due(self, horizon: Horizon) -> datetime | None:
        """The instant, in UTC, at which the first message comes due that is not due by `horizon`;
        None if there is none.
        """
        ...


@runtime_checkable
class SkipsHeld(Protocol):
    """A driver's session of a store that remembers where `has_work` found something eligible, so
    that what is held back before that, perhaps a million messages, is looked at once only.
    """

    def skip_held(self, horizon: Horizon) -> Horizon:
        """The same horizon, from the first message on that was eligible then."""
        ...


@runtime_checkable
class TellsPlanSql(Protocol):
    """A driver's session of a store whose plan is a query."""

    def plan_sql(self, horizon: Horizon) -> str:
        """The query by which a sweep in one slice would read its claim keys."""
        ...


@runtime_checkable
class TakesMessages(Protocol):
    """A task's session that can remove messages in the statement that claims them. Its own class
    has to have these methods: who derives a session, and changes how it claims or finishes, does
    not inherit them unawares. `can_take`: its server can do it.
    """

    can_take: bool

    def take(self, run: SweepRun, claim_keys: Sequence[str]) -> Claim:
        """As `TaskSession.claim`, but remove the messages at once.

        Raises `UnusualBatchError` where it cannot take all that a claim might lock: others hold a
        row for long, or a message is in back-off. Then the transaction has to be rolled back.
        """
        ...

    def finish_taken(
        self, run: SweepRun, slice_number: int, outcomes: BatchResult, server_us: int
    ) -> None:
        """As `TaskSession.finish`, for messages that were taken and have all been delivered."""
        ...


@runtime_checkable
class EndsIdleClients(Protocol):
    """A task's session whose server can take its messages from a client that is frozen."""

    def expect_no_idle_client(self) -> None:
        """Let the server end a transaction whose client sends nothing for long. For a task whose
        batches wait for nothing else than this session.
        """
        ...


@runtime_checkable
class StopsSweeps(Protocol):
    """A driver's session of a store whose sweeps can be stopped early."""

    def stop_sweep(self, sweep_id: UUID, after_seconds: float) -> None:
        """Let an open sweep stop so many seconds from now, by the server's clock. From then on its
        tasks' `claim` and `take` raise `SweepStoppedError`; `finish` and `end_slice` do not. An
        earlier stop stays as it is. Does nothing to a closed sweep.
        """
        ...


def refuse_outdated(session: DriverSession) -> None:
    """Raise `ConfigError` for a session that lacks a method of the contract, or an optional
    parameter of one: a custom store may have been written for an earlier version.
    """
    lacking = _find_lacking(type(session))
    if lacking:
        raise ConfigError(
            f"{type(session).__name__} is no driver's session: it lacks {', '.join(lacking)}",
            advice="see docs/stores.md: the contract may have changed since the store was written",
        )


@cache
def _find_lacking(kind: type) -> tuple[str, ...]:
    lacking = []
    for name, wanted in inspect.getmembers(DriverSession, inspect.isfunction):
        found = getattr(kind, name, None)
        if name.startswith("_") or wanted.__module__.partition(".")[0] != "duesweep":
            continue
        if not callable(found):
            lacking.append(f"{name}()")
            continue
        known = inspect.signature(found).parameters
        if any(each.kind is each.VAR_KEYWORD for each in known.values()):
            continue
        named = inspect.signature(wanted).parameters.values()
        optional = {each.name for each in named if each.default is not each.empty}
        lacking += [f"{each} of {name}()" for each in sorted(optional - known.keys())]
    return tuple(lacking)
