"""Operators' commands, killed at each step and raced: nothing lost, nothing doubled."""

import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from duesweep.change_messages import Chosen, NewDue, cancel_chosen, reschedule_chosen
from duesweep.core.change import Command, CommandName
from duesweep.core.moment import Moment
from duesweep.core.policy import BatchLimits
from duesweep.core.waiting import DueSpan
from duesweep.errors import StoreError
from duesweep.ledger import opening
from duesweep.ledger.ledger import Ledger
from duesweep.restore import CancelledId, CancelledMessages, Restore
from duesweep.steer import CommandReport, Work, run_command
from duesweep.stores.postgresql.changing import PostgreSqlChangeSession
from duesweep.sweep.job import SweepContext
from support.endpoint import Endpoint
from support.faults.dead_sweeps import await_end_of
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.trials.armed import dying

HOUR = 3_600
BATCH_ROWS = 3
MESSAGES = 8
LIMITS = BatchLimits(rows=BATCH_ROWS)


class Death(NamedTuple):
    """A crash point, the occurrence at which the command dies there, and how many messages it has
    changed by then.
    """

    point: str
    occurrence: int
    changed: int

    def __str__(self) -> str:
        return f"{self.point} ({self.occurrence})"


SETTLING = [
    Death("before DriverSession.close_sweep", 1, MESSAGES),
    Death("after DriverSession.close_sweep", 1, MESSAGES),
    Death("after DriverSession.seal", 1, MESSAGES),
    Death("after LedgerTables.append(changes)", 1, MESSAGES),
    Death("before DriverSession.delete_settled", 1, MESSAGES),
    Death("after DriverSession.delete_settled", 1, MESSAGES),
]
CANCELLING = [
    Death("after KeepsCommands.open_command", 1, 0),
    Death("before ChangesMessages.hold", 1, 0),
    Death("after ChangesMessages.hold", 1, 0),
    Death("after ChangesMessages.cancel", 1, 0),
    Death("after ChangesMessages.cancel", 2, BATCH_ROWS),
    # The table `changes` is there since the first command.
    Death("after LedgerTables.create(changes)", 1, MESSAGES),
    Death("before LedgerTables.set_properties(tombstones)", 1, MESSAGES),
    # Only cancelled messages get tombstones.
    Death("after LedgerTables.append(tombstones)", 1, MESSAGES),
    *SETTLING,
]
RESTORING = [
    Death("after ChangesMessages.put_back", 1, 0),
    Death("after ChangesMessages.put_back", 2, BATCH_ROWS),
    *SETTLING,
]
RESCHEDULING = [
    Death("after ChangesMessages.reschedule", 1, 0),
    Death("after ChangesMessages.reschedule", 2, BATCH_ROWS),
    Death("before DriverSession.close_sweep", 1, MESSAGES),
]


@pytest.fixture
def context(endpoint: Endpoint) -> SweepContext:
    """A store that was swept before, so that its ledger is there."""
    endpoint.set_up("Billing")
    context = endpoint.context()
    assert run_sweep(context).outcome == "done"
    return context


def ledger_of(context: SweepContext) -> Ledger:
    return opening.open_ledger(context.ledger_root, context.ledger_writer, None, context.timeouts)


def command(context: SweepContext, name: CommandName, work: Work) -> CommandReport:
    return run_command(context, ledger_of(context), Command(name, "a@b", "a test"), work)


def chosen(keys: Sequence[str]) -> Chosen:
    return Chosen(keys, [0] * len(keys), DueSpan())


def cancel(context: SweepContext, keys: Sequence[str]) -> CommandReport:
    return command(context, CommandName.CANCEL, cancel_chosen(chosen(keys), LIMITS))


def restore_all(context: SweepContext) -> CommandReport:
    messages = CancelledMessages(ledger_of(context), context.store.source)
    ids = {CancelledId(row["sweep_id"], row["message_key"]) for row in messages.shown()}
    return command(context, CommandName.RESTORE, Restore(messages, ids, LIMITS).work())


@pytest.mark.parametrize("death", CANCELLING, ids=str)
def test_cancel_that_is_killed_is_settled_once_and_the_rest_waits(
    death: Death, endpoint: Endpoint, context: SweepContext, ledger: LedgerReader
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)

    with dying(context, death.point, death.occurrence) as dying_context:
        cancel(dying_context, keys)
    await_end_of(context)
    run_sweep(context)

    cancelled = [row.message_key for row in ledger.rows("changes")] if has_changes(context) else []
    assert len(cancelled) == len(set(cancelled)) == death.changed
    assert sorted([*cancelled, *endpoint.waiting()]) == sorted(keys)
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(cancelled)
    for table in ("sweeps", "changes", "journal"):
        assert endpoint.fetch(f"SELECT FROM {endpoint.own_table(table)}") == []

    assert cancel(context, endpoint.waiting()).tally.changed == MESSAGES - death.changed
    assert endpoint.waiting() == []
    assert sorted(row.message_key for row in ledger.rows("changes")) == sorted(keys)


@pytest.mark.parametrize("death", RESCHEDULING, ids=str)
def test_reschedule_that_is_killed_has_moved_what_the_ledger_says(
    death: Death, endpoint: Endpoint, context: SweepContext, ledger: LedgerReader
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)
    to_now = NewDue(Moment(offset=timedelta(seconds=-1)))
    work = reschedule_chosen(chosen(keys), LIMITS, to_now)

    with dying(context, death.point, death.occurrence) as dying_context:
        command(dying_context, CommandName.RESCHEDULE, work)
    await_end_of(context)
    done = run_sweep(context)

    moved = [row.message_key for row in ledger.rows("changes")] if has_changes(context) else []
    assert len(moved) == done.dispatched == death.changed
    assert sorted([*moved, *endpoint.waiting()]) == sorted(keys)


@pytest.mark.parametrize("death", RESTORING, ids=str)
def test_restore_that_is_killed_and_run_again_restores_each_message_once(
    death: Death, endpoint: Endpoint, context: SweepContext, ledger: LedgerReader
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)
    assert cancel(context, keys).tally.changed == MESSAGES
    text = f"SELECT headers, body, due FROM {endpoint.delayed}"
    assert endpoint.fetch(text) == []

    with dying(context, death.point, death.occurrence) as dying_context:
        restore_all(dying_context)
    await_end_of(context)
    assert len(endpoint.waiting()) == death.changed
    restore_all(context)

    assert len(endpoint.waiting()) == MESSAGES
    changes = Counter(row.change for row in ledger.rows("changes"))
    assert changes == {"cancelled": MESSAGES, "restored": MESSAGES}
    restored = {row.new_key for row in ledger.rows("changes")} - {None}
    assert restored == set(endpoint.waiting())


def test_two_restores_at_once_restore_each_message_once(
    endpoint: Endpoint, context: SweepContext, ledger: LedgerReader
) -> None:
    keys = endpoint.delay_many(300, due_in_seconds=HOUR)
    cancel(context, keys)

    def restore() -> int:
        # Each waits a few seconds for the other one to end.
        return restore_all(context).tally.changed

    with ThreadPoolExecutor(2) as pool:
        changed = [each.result() for each in [pool.submit(restore), pool.submit(restore)]]

    assert sum(changed) == len(endpoint.waiting()) == 300
    assert sum(row.change == "restored" for row in ledger.rows("changes")) == 300


def test_two_cancels_at_once_and_a_sweep_take_each_message_once(
    endpoint: Endpoint, context: SweepContext, ledger: LedgerReader
) -> None:
    keys = endpoint.delay_many(600)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(cancel, context, keys)
        second = pool.submit(cancel, context, keys[::-1])
        swept = pool.submit(run_sweep, context)
        cancelled = first.result().tally.changed + second.result().tally.changed
        dispatched = swept.result().dispatched

    waiting = endpoint.waiting()
    assert cancelled + dispatched + len(waiting) == 600
    run_sweep(context)
    tombstones = ledger.rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    assert len(endpoint.queue_rows("Billing")) == dispatched + len(waiting)


def test_restore_does_not_begin_while_another_is_not_settled(
    endpoint: Endpoint, context: SweepContext
) -> None:
    cancel(context, endpoint.delay_many(1, due_in_seconds=HOUR))

    with context.store.open_driver() as other:
        # As one whose session was lost and came back: it lives, and holds no lock of the source.
        other.open_command(Command(CommandName.RESTORE, "a@b", None))  # type: ignore[attr-defined]
        with pytest.raises(StoreError, match="has not ended yet"):
            restore_all(context)

    await_end_of(context)
    assert restore_all(context).tally.changed == 1


def has_changes(context: SweepContext) -> bool:
    return ledger_of(context).read().has_changes


def test_error_says_what_the_command_had_done_before(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, context: SweepContext
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)
    cancel_batch, batches = PostgreSqlChangeSession.cancel, Counter[str]()

    def fail_in_the_second(self: PostgreSqlChangeSession, *arguments: Any) -> None:
        batches["begun"] += 1
        if batches["begun"] == 2:
            raise StoreError("The store is away", transient=True, advice="wait")
        cancel_batch(self, *arguments)

    monkeypatch.setattr(PostgreSqlChangeSession, "cancel", fail_in_the_second)
    with pytest.raises(StoreError) as caught:
        cancel(context, keys)

    expected = rf"The store is away\. By then command \S{{36}} had changed {BATCH_ROWS} or more"
    assert re.match(expected + " messages; wait$", str(caught.value))
    assert len(endpoint.waiting()) == MESSAGES - BATCH_ROWS
