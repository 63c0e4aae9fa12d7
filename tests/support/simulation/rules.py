"""The rules of exactly-once, each of which can be taken out: a simulation that does not notice is
of no use. A rule of the store's is taken out of the store in memory, any other one of duesweep's
code.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from duesweep.core.account import SweepTally
from duesweep.core.errors import RefusedMessageError
from duesweep.core.message import Faulty, Stays, Why
from duesweep.core.policy import Paused
from duesweep.core.world import StoreClock
from duesweep.operations import command
from duesweep.sweep import settle, sweep
from duesweep.sweep.batch import Batches
from duesweep_testing.memory_driver import MemoryJournal, MemorySweeps
from duesweep_testing.memory_ledger import MemoryTable
from duesweep_testing.memory_queue import MemoryQueueSession
from duesweep_testing.memory_sessions import MemoryChangeSession, MemoryTaskSession
from support.simulation.run import Settings
from support.simulation.services import SimulatedQueueSession

_FENCE, _CLAIM, _FINISH = (
    MemoryTaskSession._fence,  # noqa: SLF001 - a rule is behind it
    MemoryTaskSession.claim,
    MemoryTaskSession.finish,
)
_CLOSE, _CHARGE, _DELIVER = (
    MemorySweeps.close,
    Batches._charge,  # noqa: SLF001 - a rule is behind it
    SimulatedQueueSession.deliver,
)


def _claim_with(change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A claim of a session and a run, either of which is changed before."""

    def claim(self: Any, run: Any, *more: Any) -> Any:
        return _CLAIM(self, change(self, run), *more)

    return claim


def _free_all(session: Any, run: Any) -> Any:
    session._store.holders.clear()  # noqa: SLF001
    return run


def _look_ahead(_: Any, run: Any) -> Any:
    later = run.horizon.before + timedelta(days=1)
    return replace(run, horizon=replace(run.horizon, before=later))


def _ignore_back_off(self: Any, *arguments: Any) -> Any:
    counters = self._store.attempts.items()
    over = {key: one._replace(next_attempt_at=0) for key, one in counters}
    with patch.object(self._store, "attempts", over):
        return _CLAIM(self, *arguments)


def _do_not_wait(self: Any, sweep_id: Any, **options: Any) -> bool:
    sweep = self._store.sweeps.get(sweep_id)
    if sweep is not None:
        sweep.in_flight.clear()
    return _CLOSE(self, sweep_id, **options)


def _leave_open(self: Any, sweep_id: Any, *, abandoned: bool, **options: Any) -> bool:
    return True if abandoned else _CLOSE(self, sweep_id, abandoned=abandoned, **options)


def _deliver_at_once(self: Any, *arguments: Any) -> Any:
    if self._store is None:
        return _DELIVER(self, *arguments)
    with patch.object(self._store, "enlist", lambda change: change()):
        return _DELIVER(self, *arguments)


def _finish_with(change: Callable[[Any, Any], bool], *, at_once: bool) -> Callable[..., None]:
    """A finish whose changes of one sort are made before COMMIT, or never."""

    def finish(self: Any, run: Any, *more: Any) -> None:
        _FINISH(self, run, *more)
        chosen = [one for one in self._changes if change(one, self._store)]
        self._changes[:] = [one for one in self._changes if one not in chosen]
        for one in chosen if at_once else ():
            one()

    return finish


def _is_journal(change: Any, store: Any) -> bool:
    owner = getattr(getattr(change, "func", None), "__self__", None)
    return any(owner is entries for entries in store.journal.values())


def _is_removal(change: Any, store: Any) -> bool:
    return getattr(getattr(change, "func", None), "__self__", None) is store.rows


def _forget_first(
    session: Any, ledger: Any, sweep_id: Any, patience: Any, *, tally: Any = None
) -> Any:
    session.journal.seal(sweep_id)
    summary, retries_changed = session.journal.summary(sweep_id)
    exhausted = session.journal.pieces(sweep_id, command=False)
    kept = list(session.journal.batches(sweep_id))
    settle._forget(session, ledger, sweep_id)  # noqa: SLF001
    with patch.object(MemoryJournal, "batches", lambda *_: iter(kept)):
        ledger.write_sweep(
            session.journal,
            summary,
            exhausted,
            patience,
            retries_changed=retries_changed,
            tally=tally,
        )
    return summary


def _drop_any(journal: Any, sweep_id: Any, _: Any) -> Any:
    report = settle.count_sweep(journal, sweep_id, SweepTally(None))
    journal.delete_settled(sweep_id, is_in_ledger=False)
    return replace(report, sweep_ids=())


def _charge_all(self: Any, outcomes: list[Any]) -> Any:
    charged = [
        Faulty(one.message, RefusedMessageError("out of reach"))
        if isinstance(one, Stays) and one.why is Why.BLOCKED
        else one
        for one in outcomes
    ]
    return _CHARGE(self, charged)


def _replaced(owner: Any, name: str, by: Any) -> Callable[[], AbstractContextManager[object]]:
    return lambda: patch.object(owner, name, by)


@contextmanager
def _without_due() -> Iterator[None]:
    with (
        patch.object(MemoryTaskSession, "claim", _claim_with(_look_ahead)),
        patch.object(StoreClock, "waits", lambda *_: {}),
    ):
        yield


@contextmanager
def _without_life() -> Iterator[None]:
    unsettled = MemoryJournal.unsettled
    dead = lambda journal: [replace(one, is_alive=False) for one in unsettled(journal)]  # noqa: E731

    def close(sweeps: Any, sweep_id: Any, **options: Any) -> bool:
        sweep = sweeps._store.sweeps.get(sweep_id)  # noqa: SLF001
        owner = sweep and sweep.owner
        if sweep is not None:
            sweep.owner = None
        is_closed = _CLOSE(sweeps, sweep_id, **options)
        if sweep is not None and not is_closed:
            sweep.owner = owner
        return is_closed

    with (
        patch.object(MemoryJournal, "unsettled", dead),
        patch.object(MemoryJournal, "adopt", lambda *_: True),
        patch.object(MemorySweeps, "close", close),
    ):
        yield


# Each rule, and how to take it out.
RULES: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "a batch begins only while its sweep is open": _replaced(
        MemoryTaskSession, "_fence", lambda *_: None
    ),
    "a sweep is closed after its batches in flight": _replaced(MemorySweeps, "close", _do_not_wait),
    "only a dead sweep is closed by others": _without_life,
    "a claim leaves what others hold": _replaced(
        MemoryTaskSession, "claim", _claim_with(_free_all)
    ),
    "a claim tests the Due again, and so does the delivery": _without_due,
    "a claim tests the back-off again": _replaced(MemoryTaskSession, "claim", _ignore_back_off),
    "a batch asks for pauses after its locks": _replaced(
        Paused, "separate", lambda _, messages: ([], list(messages))
    ),
    "messages arrive when their batch commits": _replaced(
        SimulatedQueueSession, "deliver", _deliver_at_once
    ),
    "the journal commits with the batch": _replaced(
        MemoryTaskSession, "finish", _finish_with(_is_journal, at_once=True)
    ),
    "each batch is journalled": _replaced(
        MemoryTaskSession, "finish", _finish_with(_is_journal, at_once=False)
    ),
    "what is delivered leaves the store": _replaced(
        MemoryTaskSession, "finish", _finish_with(_is_removal, at_once=False)
    ),
    "what a lost transaction sent is not confirmed later": _replaced(
        MemoryQueueSession, "rollback", lambda _: None
    ),
    "only a message's own fault costs an attempt": _replaced(Batches, "_charge", _charge_all),
    "a sweep exhausts no more than it may": _replaced(
        MemoryTaskSession, "grant_exhausted", lambda _, __, wanted, ___: wanted
    ),
    "each change of an operator is journalled": _replaced(
        MemoryChangeSession, "_journal", lambda *_: None
    ),
    "a command that puts messages back runs alone, and after all others": _replaced(
        command, "_other_undoing", lambda *_: None
    ),
    "a sweep is settled after it was closed": _replaced(MemorySweeps, "close", _leave_open),
    "a table takes each sweep once": _replaced(MemoryTable, "has", lambda *_: False),
    "the ledger has each round that moved messages": _replaced(sweep, "drop_empty", _drop_any),
    "the journal forgets what the ledger has": _replaced(settle, "_settle", _forget_first),
}

# Few runs have what breaks a promise without these rules.
_NEEDED: Mapping[str, Mapping[str, Any]] = {
    "a batch begins only while its sweep is open": {"has_executors": True, "rarity": 20},
    "only a dead sweep is closed by others": {"sweepers": 3, "watchers": 2, "rarity": 200},
    "a sweep is closed after its batches in flight": {
        "roles": (),
        "has_executors": True,
        "rarity": 20,
        "sweepers": 3,
        "messages": 40,
        "slices": 3,
        "batch_rows": 1,
    },
    "a claim tests the Due again, and so does the delivery": {
        "roles": ("operator",),
        "rarity": 200,
        "sweepers": 3,
        "messages": 12,
        "batch_rows": 1,
        "slices": 1,
        "sessions": 1,
    },
    "a claim tests the back-off again": {
        "roles": ("weather",),
        "rarity": 200,
        "sweepers": 3,
        "messages": 40,
        "slices": 3,
    },
    "what a lost transaction sent is not confirmed later": {
        "roles": (),
        "may_double": True,
        "rarity": 20,
        "messages": 40,
        "batch_rows": 3,
    },
    "a command that puts messages back runs alone, and after all others": {
        "roles": ("operator", "returner"),
        "rarity": 200,
    },
    "a sweep exhausts no more than it may": {
        "roles": ("weather",),
        "rarity": 200,
        "sweepers": 1,
        "watchers": 0,
        "messages": 40,
        "batch_rows": 10,
        "slices": 3,
    },
}


def settings_for(rule: str, seed: int) -> Settings:
    """The settings of a run that may show that a rule is missing."""
    return replace(Settings.of(seed), **_NEEDED.get(rule, {}))
