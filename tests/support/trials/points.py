"""Crash points: named moments of a sweep at which a trial does harm.

The process of a sweep, and Spark's workers, hook them into the classes of stores, queues and
ledger. Nothing in `lib/` knows of them.
"""

import functools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from duesweep.errors import DuesweepError
from duesweep.ledger.ledger import Ledger
from duesweep.queues.rabbitmq.session import RabbitMqQueueSession
from duesweep.queues.tables import QueueTableSession
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from duesweep.stores.relational.driver import RelationalDriverSession
from duesweep.stores.relational.journal import RelationalJournal
from duesweep.stores.relational.task import RelationalTaskSession

_POLL_SECONDS = 0.01
# Whoever does the harm has died, if it takes longer.
_HELD_SECONDS = 120

# Wait for the harm to be done, and then go on; raise what nobody foresaw; or what nothing catches.
# Or stop as a whole, as SIGSTOP, a paused machine or a cgroup's freezer stop a process.
HOLD, RAISE, DIE, FREEZE = "hold", "raise", "die", "freeze"


class InjectedFaultError(Exception):
    """No fault that duesweep knows."""


class DeathError(BaseException):
    """As if the process ended here: no `except Exception` sees it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Do `action` when `point` is reached for the `occurrence`th time (from 1), once in a trial.
    `folder` is where the processes of the trial meet; no point: nothing happens.
    """

    folder: str
    point: str | None = None
    occurrence: int = 1
    action: str = HOLD

    @property
    def fired(self) -> Path:
        """The file that says that the moment has come: who came to it."""
        return Path(self.folder) / "fired"

    @property
    def resume(self) -> Path:
        """The file that says that the harm is done."""
        return Path(self.folder) / "resume"

    def text(self) -> str:
        """As an argument of a process."""
        return json.dumps(asdict(self))


class _Armed:
    """The plan of this process, and how often each point was reached since."""

    plan: Plan | None = None
    reached: ClassVar[Counter[str]] = Counter()
    # What was there before the hooks.
    originals: ClassVar[list[tuple[type, str, Any]]] = []


def arm(plan: Plan) -> None:
    """Follow `plan` in this process from now on."""
    if plan != _Armed.plan:
        _Armed.plan, _Armed.reached = plan, Counter()
    if not _Armed.originals:
        _hook_all()


def disarm() -> None:
    """Remove all hooks from this process."""
    while _Armed.originals:
        setattr(*_Armed.originals.pop())
    _Armed.plan = None


def reach(point: str) -> None:
    """The process is at `point`."""
    plan = _Armed.plan
    if plan is None or point != plan.point:
        return
    _Armed.reached[point] += 1
    if _Armed.reached[point] != plan.occurrence:
        return
    try:
        # Several processes may come here; one of them is the trial's. Who sees the file reads it.
        own = plan.fired.with_name(f"fired-{os.getpid()}")
        own.write_text(str(os.getpid()), "utf-8")
        plan.fired.hardlink_to(own)
    except FileExistsError:
        return
    if plan.action == RAISE:
        raise InjectedFaultError(point)
    if plan.action == DIE:
        raise DeathError(point)
    if plan.action == FREEZE:
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        _hold(plan, point)


def _hold(plan: Plan, point: str) -> None:
    deadline = time.monotonic() + _HELD_SECONDS
    while not plan.resume.exists():
        if time.monotonic() > deadline:
            raise InjectedFaultError(f"nobody did harm at {point}")
        time.sleep(_POLL_SECONDS)


def _hook_all() -> None:
    # Loaded already, if the store is of this dialect.
    from duesweep.queues.postgresql import PostgreSqlQueueSession  # noqa: PLC0415
    from duesweep.stores.postgresql.task import PostgreSqlTaskSession  # noqa: PLC0415

    for cls, names in {
        PostgreSqlTaskSession: {"claim": "claim", "take": "claim"},
        RelationalTaskSession: {
            "finish": "finish", "finish_taken": "finish", "end_slice": "end of slice",
        },
        PostgreSqlQueueSession: {"append": "deliver"},
        QueueTableSession: {"deliver": "deliver", "commit": "queue's commit"},
        RabbitMqQueueSession: {"deliver": "deliver", "confirm": "confirm"},
        PostgreSqlDriverSession: {"plan": "plan"},
        RelationalDriverSession: {"open_sweep": "open"},
        RelationalJournal: {
            "close_sweep": "close", "seal": "seal", "bind": "bind",
            "delete_settled": "delete journal",
        },
        Ledger: {
            "append": "append to {}", "replace_source": "append to {}", "_create": "create {}",
        },
    }.items():  # fmt: skip
        for name, point in names.items():
            _hook(cls, name, point)
    _hook_commit(RelationalTaskSession)
    _hook_sqlserver()


def _hook_sqlserver() -> None:
    try:
        from duesweep.stores.sqlserver.driver import SqlServerDriverSession  # noqa: PLC0415
        from duesweep.stores.sqlserver.task import SqlServerTaskSession  # noqa: PLC0415
    except (DuesweepError, ImportError):  # its driver is not on this machine
        return
    _hook(SqlServerDriverSession, "plan", "plan")
    _hook(SqlServerTaskSession, "claim", "claim")
    _hook_commit(SqlServerTaskSession)


def _hook(cls: type, name: str, point: str) -> None:
    """Make `cls.name` reach a point before and after it; braces take its first argument."""
    method: Callable[..., Any] = vars(cls)[name]

    @functools.wraps(method)
    def hooked(session: Any, *arguments: Any, **options: Any) -> Any:
        named = point.format(*arguments[:1])
        reach(f"before {named}")
        result = method(session, *arguments, **options)
        reach(f"after {named}")
        return result

    _Armed.originals.append((cls, name, method))
    setattr(cls, name, hooked)


def _hook_commit(cls: type) -> None:
    """Make each transaction of a task, savepoints apart, reach a point before and after COMMIT."""
    transaction: Callable[..., Any] = vars(cls)["transaction"]

    @contextmanager
    def hooked(session: Any) -> Iterator[None]:
        depth = getattr(session, "_trial_depth", 0)
        session._trial_depth = depth + 1  # noqa: SLF001 - no other session has it
        try:
            with transaction(session):
                yield
                if not depth:
                    reach("before commit")
        finally:
            session._trial_depth = depth  # noqa: SLF001 - as above
        if not depth:
            reach("after commit")

    _Armed.originals.append((cls, "transaction", transaction))
    setattr(cls, "transaction", hooked)  # noqa: B010 - as above: any class
