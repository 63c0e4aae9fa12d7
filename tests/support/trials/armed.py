"""Wraps the factories' results, so that a trial's plan is followed at its crash point.

The wrapper of an object is a class of its own, derived from the object's, in which the contract's
methods reach their points. So whatever is asked of the object is answered as before: which class it
has, and which abilities.
"""

import copy
import functools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.ledger import ledger as ledgers
from duesweep.ledger.base import LedgerTables
from duesweep.ledger.ledger import Ledger
from duesweep.queues.base import Queue, QueueSession
from duesweep.stores.base import DriverSession, Store, operators_of
from duesweep.stores.binding import SourceBinding
from duesweep.stores.due import Due
from duesweep.stores.journal import Journal
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import Sweeps
from duesweep.stores.task import TaskSession
from duesweep.sweep.job import SweepContext
from support.trials.points import (
    DIE,
    METHODS,
    DeathError,
    Plan,
    arm,
    disarm,
    method_name,
    reach,
)


@contextmanager
def following(plan: Plan) -> Iterator[Counter[str]]:
    """Follow `plan` in all that the factories make during the block in this process, and in Spark's
    workers. Yields how often each point was reached in this process.
    """
    make_context, open_ledger = sweep_context, ledgers.open_ledger

    def make_armed(config: Config, **options: Any) -> SweepContext:
        return armed_context(make_context(config, **options), plan)

    def armed_ledger(*arguments: Any, **options: Any) -> Ledger:
        ledger = open_ledger(*arguments, **options)
        return replace(ledger, tables=_armed(ledger.tables, LedgerTables))

    with _replaced(make_context, make_armed), _replaced(open_ledger, armed_ledger):
        try:
            yield arm(plan)
        finally:
            disarm()


def armed_context(context: SweepContext, plan: Plan) -> SweepContext:
    """`context`; what works with it follows `plan`."""
    return replace(
        context, store=armed_store(context.store, plan), queue=armed_queue(context.queue)
    )


@contextmanager
def dying(point: str, occurrence: int = 1) -> Iterator[None]:
    """The code in the block dies as a process would that comes to a crash point for the
    `occurrence`th time. Its connections are closed, and uncommitted work is lost. A block
    that does not die is an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(folder, point, occurrence, DIE)
        with following(plan), suppress(DeathError):
            yield
        assert plan.fired_point is not None, f"{point} was not reached {occurrence} times"


def armed_store(store: Store, plan: Plan) -> Store:
    """`store`; who opens a session of a task follows `plan`, also on one of Spark's workers."""

    @contextmanager
    def open_task(_: Store) -> Iterator[TaskSession]:
        arm(plan)
        with store.open_task() as session:
            yield _armed(session, TaskSession)

    @contextmanager
    def open_changes(_: Store) -> Iterator[OperatorTask]:
        with operators_of(store, "a command").open_changes() as session:
            yield _armed(session, OperatorTask)

    def open_driver(_: Store) -> DriverSession:
        session = store.open_driver()
        _armed(session.due, Due)
        _armed(session.sweeps, Sweeps)
        _armed(session.journal, Journal)
        _armed(session.binding, SourceBinding)
        return session

    methods = {
        "open_task": open_task,
        "open_driver": open_driver,
        "__reduce__": lambda _: (armed_store, (store, plan)),
    }
    if store.operators() is not None:
        methods["open_changes"] = open_changes
    return _derived(copy.copy(store), **methods)


def armed_queue(queue: Queue) -> Queue:
    """`queue`; its sessions reach their points."""

    @contextmanager
    def open_session(_: Queue, store: TaskSession) -> Iterator[QueueSession]:
        with queue.open(store) as session:
            yield _armed(session, QueueSession)

    return _derived(
        copy.copy(queue), open=open_session, __reduce__=lambda _: (armed_queue, (queue,))
    )


def _armed(subject: Any, *contracts: type) -> Any:
    """`subject`, whose methods of these contracts reach their points."""
    kind = type(subject)
    methods = {
        name: _reaching(contract, name, getattr(kind, name))
        for contract in contracts
        for name in METHODS[contract]
        # Not the contract's own answer, which says that the session cannot do it.
        if getattr(kind, name) is not TaskSession.move
    }
    return _derived(subject, **methods)


def _derived(subject: Any, **methods: Any) -> Any:
    """`subject`, of a class derived from its own with these methods."""
    kind = type(subject)
    derived = type(kind.__name__, (kind,), {"__slots__": (), **methods})
    # Not by `setattr`, which a frozen value refuses.
    object.__setattr__(subject, "__class__", derived)
    return subject


def _reaching(contract: type, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    if name == "transaction":
        return _committing(contract, method)

    @functools.wraps(method)
    def reaching(subject: Any, *arguments: Any, **options: Any) -> Any:
        table = arguments[0] if contract is LedgerTables else None
        if contract is LedgerTables and name == "write":
            table = arguments[0][0].table
        named = method_name(contract, name, table)
        reach("before", named)
        result = method(subject, *arguments, **options)
        reach("after", named)
        return result

    return reaching


def _committing(
    contract: type, transaction: Callable[[Any], AbstractContextManager[None]]
) -> Callable[..., Any]:
    """Each transaction of a session, savepoints apart, reaches points around its COMMIT."""
    named = method_name(contract, "transaction")
    depth = 0

    @contextmanager
    def committing(session: Any) -> Iterator[None]:
        nonlocal depth
        depth += 1
        try:
            with transaction(session):
                yield
                if depth == 1:
                    reach("before", named)
        finally:
            depth -= 1
        if depth == 0:
            reach("after", named)

    return committing


@contextmanager
def _replaced(factory: Callable[..., Any], armed: Callable[..., Any]) -> Iterator[None]:
    """Callers of `factory` call `armed`, wherever it was imported to."""
    _replace(factory, armed)
    try:
        yield
    finally:
        _replace(armed, factory)


def _replace(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        # Shared code of tests also makes contexts.
        if name.partition(".")[0] not in {"duesweep", "support"}:
            continue
        for attribute, value in list(vars(module).items()):
            if value is old:
                setattr(module, attribute, new)
