"""What journal, ledger and fault headers call an error's class stays, wherever the class is."""

import pkgutil
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module

import duesweep
import duesweep_transport
from duesweep.core.errors import DuesweepError, MessageError, QueueNotFoundError
from duesweep.core.exhausted import ErrorRow
from duesweep.core.message import EXCEPTION_TYPE, fault_headers
from duesweep.core.policy import Retry
from duesweep_testing.builders import MESSAGE_TYPE, delayed_row
from support.dispatch_world import world_of

_NOW = datetime(2026, 11, 24, tzinfo=UTC)

# Each class's stored name, and the group of its errors of type MESSAGE_TYPE for Billing, as d91097e
# computed them (three classes are younger). Rows of ledgers and messages in error queues have these
# names: a line may be added here, and none may change.
_GROUPS = {
    "duesweep.core.allowed.DestinationNotAllowedError": "221510f5",
    "duesweep.core.routing.NoRouteError": "29df7ebe",
    "duesweep.drivers.rabbitmq.errors.ChannelClosedError": "1e4e2ee8",
    "duesweep.drivers.rabbitmq.errors.UnansweredError": "c4e7bd49",
    "duesweep.drivers.rabbitmq.management.NotAllowedError": "a0a19212",
    "duesweep.errors.ConfigError": "8176c178",
    "duesweep.errors.DeliveryFailedError": "cb864775",
    "duesweep.errors.DestinationError": "847a8047",
    "duesweep.errors.DuesweepError": "2e2a4af7",
    "duesweep.errors.LedgerError": "ee4b13e0",
    "duesweep.errors.LedgerLockedError": "20f2f4e6",
    "duesweep.errors.MessageError": "5cfeaea0",
    "duesweep.errors.MissingRightError": "59c34a7b",
    "duesweep.errors.NotAQueueError": "1bcf6198",
    "duesweep.errors.NothingDueError": "a4642a9f",
    "duesweep.errors.OdbcDriverError": "5b6bb2f5",
    "duesweep.errors.QueueError": "cd7a52ad",
    "duesweep.errors.QueueNotFoundError": "ef5aae9a",
    "duesweep.errors.RefusedMessageError": "bff3f822",
    "duesweep.errors.RefusedStatementError": "65d4c593",
    "duesweep.errors.ServiceError": "d3eef1b6",
    "duesweep.errors.SilentServiceError": "057c7cd7",
    "duesweep.errors.SparkError": "a2221288",
    "duesweep.errors.StoreError": "48329043",
    "duesweep.errors.SweepClosedError": "15af0ea1",
    "duesweep.errors.SweepStoppedError": "c7d92286",
    "duesweep.errors.TransactionLostError": "cf246f67",
    "duesweep.errors.UnreadableAddressError": "de752e05",
    "duesweep.errors.UnreadableHeadersError": "75b9d5dc",
    "duesweep.errors.UnusualBatchError": "5ead56a0",
    "duesweep.queues.rabbitmq.session.LadderMissingError": "d98aaffe",
}


def _subclasses(kind: type[DuesweepError]) -> Iterator[type[DuesweepError]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _subclasses(one)


def _own_classes() -> list[type[DuesweepError]]:
    """All of both packages: tests also have some."""
    for package in (duesweep, duesweep_transport):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    ours = ("duesweep.", "duesweep_transport.")
    found = {kind for kind in _subclasses(DuesweepError) if kind.__module__.startswith(ours)}
    return sorted(found, key=lambda kind: kind.__name__)


def _stored_name(kind: type[DuesweepError]) -> str:
    """As a message of the error queue has it."""
    error = kind.__new__(kind, "It failed")
    return str(fault_headers(error, "Billing", _NOW)[EXCEPTION_TYPE])  # type: ignore[arg-type] # of any class


def _group(error_class: str) -> str:
    row = ErrorRow(
        "sweep",
        "key",
        message_id=None,
        enclosed_types=MESSAGE_TYPE,
        destination="Billing",
        attempts=1,
        first_failed_at=_NOW,
        last_failed_at=_NOW,
        error_class=error_class,
        error_text="It failed",
        failed_from=_NOW,
    )
    return row.group


def _journalled_group(error: MessageError) -> str:
    """The group of a message that a sweep gave up because of this error."""
    world = world_of(delayed_row("Billing"), retry=Retry(max_attempts=1))
    world.trouble("Billing", error)
    (gone,) = world.exhausted(world.sweep())
    assert (gone.destination, gone.message_type) == ("Billing", MESSAGE_TYPE)
    return _group(gone.error_class)


def test_each_class_has_a_name_of_its_own_that_stays() -> None:
    names = {kind.__name__: _stored_name(kind) for kind in _own_classes()}

    without = [kind.__name__ for kind in _own_classes() if "stored_name" not in vars(kind)]
    assert without == [], "give these a stored_name, and a line in this test"
    assert sorted(names.values()) == sorted(_GROUPS)
    assert {name: _group(name) for name in names.values()} == _GROUPS


def test_journal_has_the_name_of_the_fault_header() -> None:
    kinds = [kind for kind in _own_classes() if issubclass(kind, MessageError)]

    groups = {_stored_name(kind): _journalled_group(kind("It failed")) for kind in kinds}

    assert len(groups) == len(kinds) > 1
    assert groups == {name: _GROUPS[name] for name in groups}


def test_class_that_moves_and_is_renamed_keeps_its_group() -> None:
    body = {
        name: value for name, value in vars(QueueNotFoundError).items() if name != "__weakref__"
    }
    moved = type("NoQueueError", QueueNotFoundError.__bases__, {**body, "__module__": "elsewhere"})

    groups = {_journalled_group(kind("It failed")) for kind in (QueueNotFoundError, moved)}

    assert groups == {_GROUPS["duesweep.errors.QueueNotFoundError"]}


class _AcmeError(QueueNotFoundError):
    """As a custom store has it."""


def test_other_peoples_classes_are_stored_by_their_path() -> None:
    assert _stored_name(_AcmeError) == f"{__name__}._AcmeError"
