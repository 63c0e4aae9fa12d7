"""Crash points: named moments of a sweep or a command at which a trial does harm.

A point is before or after a call of a method of the contracts of stores, queues and the ledger's
tables, and is named by it: `before TaskSession.claim`. `armed` wraps the factories' results, so
that these calls come here. Nothing in `lib/` knows of it.
"""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from duesweep.ledger.base import LedgerTables
from duesweep.queues.base import QueueSession
from duesweep.stores.binding import SourceBinding
from duesweep.stores.due import Due
from duesweep.stores.journal import Journal
from duesweep.stores.people import OperatorTask
from duesweep.stores.sweeps import Sweeps
from duesweep.stores.task import TaskSession

_POLL_SECONDS = 0.01
# The process that does the harm has died, if it takes longer.
_HELD_SECONDS = 120

# Wait for the harm to be done, and then continue; raise an unexpected error; or one that nothing
# catches. Or stop as a whole, as SIGSTOP, a paused machine or a cgroup's freezer stop a process.
HOLD, RAISE, DIE, FREEZE = "hold", "raise", "die", "freeze"
WHEN = ("before", "after")

# The methods of each contract that have points, and that a sweep calls. `transaction` has them
# before and after its COMMIT, unless it is a savepoint.
_OF_SWEEPS: Mapping[type, Sequence[str]] = {
    TaskSession: ("claim", "finish", "transaction", "end_slice", "move", "finish_moved"),
    QueueSession: ("deliver", "confirm", "commit"),
    Sweeps: ("open", "close"),
    Due: ("plan", "plan_at_once"),
    Journal: ("seal", "delete_settled"),
    SourceBinding: ("bind",),
    LedgerTables: ("create", "set_properties", "write"),
}
# A sweep from the shell plans in its look, others later: that is one point.
_POINT_OF = {"plan_at_once": "plan"}
# More methods that an operator's command calls.
_OF_COMMANDS: Mapping[type, Sequence[str]] = {
    Sweeps: ("open",),
    OperatorTask: ("hold", "cancel", "reschedule", "put_back", "journal_changes"),
    LedgerTables: ("create", "write", "set_properties"),
}
METHODS: Mapping[type, Collection[str]] = {
    contract: {*_OF_SWEEPS.get(contract, ()), *_OF_COMMANDS.get(contract, ())}
    for contract in (*_OF_SWEEPS, *_OF_COMMANDS)
}
# A method of the ledger's tables has points of its own for each table that it is called for.
_TABLES_OF_SWEEPS: Mapping[str, Sequence[str]] = {
    "create": ("tombstones", "errors", "retries", "sweeps"),
    "set_properties": ("tombstones",),
    "write": ("tombstones", "errors", "retries", "sweeps"),
}
_TABLES_OF_COMMANDS: Mapping[str, Sequence[str]] = {
    "create": ("changes",),
    "write": ("changes",),
    "set_properties": ("tombstones",),
}
# The methods of a batch in the moved form (`duesweep.sweep.batch`) for the careful form's
# methods: a plan for a point of one form is also followed in the other.
MOVED_FORM = {
    "TaskSession.move": ("TaskSession.claim", "QueueSession.deliver"),
    "TaskSession.finish_moved": ("TaskSession.finish",),
}


def method_name(contract: type, method: str, table: str | None = None) -> str:
    """The name by which points call a method; a method of a ledger's tables is called for one."""
    name = f"{contract.__name__}.{_POINT_OF.get(method, method)}"
    if method == "transaction":
        return f"COMMIT of {name}"
    return name if table is None else f"{name}({table})"


def _names(
    methods: Mapping[type, Sequence[str]], tables: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    for contract, of_contract in methods.items():
        for method in of_contract:
            if not callable(getattr(contract, method, None)):
                raise LookupError(f"{contract.__name__} has no method {method} to have points")
            for table in tables[method] if contract is LedgerTables else (None,):
                yield method_name(contract, method, table)


# The methods that have points, by the names that the points have.
NAMES = tuple(dict.fromkeys(_names(_OF_SWEEPS, _TABLES_OF_SWEEPS)))
COMMAND_NAMES = tuple(_names(_OF_COMMANDS, _TABLES_OF_COMMANDS))
_ALL_NAMES = tuple(dict.fromkeys((*NAMES, *COMMAND_NAMES)))
POINTS = tuple(f"{when} {name}" for name in _ALL_NAMES for when in WHEN)


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

    def __post_init__(self) -> None:
        if self.point is not None and self.point not in POINTS:
            known = "\n  ".join(POINTS)
            raise ValueError(f"There is no crash point {self.point!r}. There are:\n  {known}")

    @property
    def fired(self) -> Path:
        """The file that says that the moment has come: which process came to it, and where."""
        return Path(self.folder) / "fired"

    @property
    def fired_pid(self) -> int:
        """The process that came to the moment."""
        return int(self.fired.read_text("utf-8").split()[0])

    @property
    def fired_point(self) -> str | None:
        """The point where it came, by the form in which the batch ran; None: not yet."""
        return self.fired.read_text("utf-8").split(maxsplit=1)[1] if self.fired.exists() else None

    @property
    def resume(self) -> Path:
        """The file that says that the harm is done."""
        return Path(self.folder) / "resume"

    @property
    def synced(self) -> Path:
        """The file that notes which files of the ledger were synced."""
        return Path(self.folder) / "synced"

    def text(self) -> str:
        return json.dumps(asdict(self))


class _Lock:
    """Two threads may sweep. It goes to a task of Spark as a new one, because locks cannot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type["_Lock"], tuple[()]]:
        return _Lock, ()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Armed:
    """The plan of this process, and how often each point was reached since, and the plan's."""

    plan: Plan | None = None
    reached: ClassVar[Counter[str]] = Counter()
    passed = 0
    counting = _Lock()


def arm(plan: Plan) -> Counter[str]:
    """Follow `plan` in this process. Returns how often each point is reached, which
    is still counted.
    """
    if plan != _Armed.plan:
        _Armed.plan, _Armed.reached, _Armed.passed = plan, Counter(), 0
    return _Armed.reached


def disarm() -> None:
    _Armed.plan = None


def reach(when: str, name: str) -> None:
    """The process is before or after a call of this method."""
    plan = _Armed.plan
    if plan is None:
        return
    point = f"{when} {name}"
    with _Armed.counting:
        _Armed.reached[point] += 1
        if plan.point not in {point, *(f"{when} {each}" for each in MOVED_FORM.get(name, ()))}:
            return
        _Armed.passed += 1
        if _Armed.passed != plan.occurrence:
            return
    try:
        # Several processes may come here; one of them is the trial's. Who sees the file reads it.
        own = plan.fired.with_name(f"fired-{os.getpid()}")
        own.write_text(f"{os.getpid()} {point}", "utf-8")
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
