"""The contract of a store: a value that travels to tasks, and the sessions that it opens.

A *task's session* (task.py) claims a batch of messages and finishes it, on one connection, in one
transaction. A *driver's session* finds due messages (due.py), opens and closes sweeps (sweeps.py),
and hands their journal to settle (journal.py, binding.py). people.py has what operators' commands
need. A store inherits from these classes, so it has their answers if it does not give its own.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, Self

from duesweep.core.errors import ConfigError, Problem, not_supported
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.stores.binding import SourceBinding
from duesweep.stores.due import Due
from duesweep.stores.journal import Journal
from duesweep.stores.people import OperatorTask, People
from duesweep.stores.sweeps import Sweeps
from duesweep.stores.task import TaskSession


class TransactionMode(StrEnum):
    """The guarantees of moving a message; the names are NServiceBus's `TransportTransactionMode`.

    `RECEIVE_ONLY` is at least once, `SENDS_ATOMIC_WITH_RECEIVE` exactly once where store and queue
    share a transaction, `TRANSACTION_SCOPE` takes a transaction that spans servers.
    """

    NONE = "none"
    RECEIVE_ONLY = "receive-only"
    SENDS_ATOMIC_WITH_RECEIVE = "sends-atomic-with-receive"
    TRANSACTION_SCOPE = "transaction-scope"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The origin of a custom store: the section `store` of the configuration.

    `name`, `schema` and `delayed_table` are None where they are not set. `batch_bytes` limits the
    bytes that a claim may read; `options` are the store's own, from `[store.options]`; `timeouts`
    say how long it may wait for a server that does not answer.
    """

    dsn: str = field(repr=False)
    endpoint: str
    name: str | None = None
    schema: str | None = None
    delayed_table: str | None = None
    batch_bytes: int = 8_000_000
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeouts: Timeouts = DEFAULT_TIMEOUTS


class DriverSession(Protocol):
    """The driver's session: one connection, and a part of it for each of its readers. Not
    thread-safe. When it ends, its open sweeps count as dead.
    """

    source: str
    due: Due
    sweeps: Sweeps
    journal: Journal
    binding: SourceBinding

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def check(self) -> None:
        """Raise `ConfigError` unless tables, their shapes and this role's rights are as needed."""

    def check_sight(self) -> None:
        """Raise `ConfigError` for tables of another shape, and if the server hides rows from this
        user. Needs no rights.
        """
        return

    def notices(self) -> Sequence[Problem]:
        """Problems that a person should look at, although sweeps work. Cheap."""
        return ()

    def table_notices(self) -> Sequence[Problem]:
        """Faults of its tables although sweeps work. The doctor finds them itself."""
        return ()


class Store(Protocol):
    """A place where delayed messages wait. A value: plain, frozen, picklable; no secrets in its
    repr.

    `source` is the stable name under which ledger and journal know the store, `own_queue` the
    address of the endpoint's own input queue.
    """

    source: str
    own_queue: str

    def initialise(self, endpoint: str, mode: TransactionMode) -> None:
        """Be ready to serve an endpoint; called before anything but `set_up_infrastructure`.

        Raises `ConfigError` for a mode that the store cannot honour.
        """

    def open_task(self) -> AbstractContextManager[TaskSession]:
        """A session for one slice."""

    def open_driver(self) -> DriverSession:
        """A session for the driver."""

    def set_up_infrastructure(self) -> None:
        """Create missing parts of the store, such as tables; part of the command `setup`. A
        class that leaves this out expects it to exist already.
        """
        return

    def operators(self) -> "Operators | None":
        """The store's operations for people; None: it only sweeps."""
        return None


class OperatorDriver(DriverSession, Protocol):
    """A driver's session for people."""

    people: People

    def check_reading(self) -> None:
        """Raise `ConfigError` unless tables, their shapes and this user's rights are as someone
        needs them who reads only.
        """
        self.check()


class Operators(Protocol):
    """A store's operations for people, all or none: it shows waiting messages, pauses destinations,
    changes messages, and can be audited and maintained.
    """

    def open_driver(self) -> AbstractContextManager[OperatorDriver]:
        """A driver's session for people."""

    def open_changes(self) -> AbstractContextManager[OperatorTask]:
        """A session for one command."""


def operators_of(store: Store, wanted: str) -> Operators:
    """The store's operations for people. Raises `ConfigError` without them; `wanted` names in a
    few words the wanted one.
    """
    operators = store.operators()
    if operators is None:
        raise not_supported(f"{store.source}: {wanted}")
    return operators


def refuse_distributed(source: str, mode: TransactionMode) -> None:
    """Raise `ConfigError` for a mode that takes a transaction across servers."""
    if mode == TransactionMode.TRANSACTION_SCOPE:
        raise ConfigError(
            f"store.transaction_mode is {mode.value}, which takes a distributed transaction, and "
            f"{source} cannot enlist in one",
            advice=f"leave the setting out, or set {TransactionMode.RECEIVE_ONLY.value}",
        )
