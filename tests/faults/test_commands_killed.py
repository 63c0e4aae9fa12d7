"""Operators' commands, killed at each step and raced: nothing lost, nothing doubled."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from duesweep.change_messages import Chosen, NewDue, cancel_chosen, reschedule_chosen
from duesweep.context import SweepContext
from duesweep.core.change import Command, CommandName
from duesweep.core.moment import Moment
from duesweep.core.policy import BatchLimits
from duesweep.core.waiting import DueSpan
from duesweep.errors import StoreError
from duesweep.ledger.delta_rs.tables import DeltaRsTables
from duesweep.ledger.ledger import Ledger
from duesweep.ledger.opening import open_ledger
from duesweep.restore import CancelledId, CancelledMessages, Restore
from duesweep.steer import CommandReport, Work, run_command
from duesweep.stores.postgresql.changing import PostgreSqlChangeSession
from duesweep.stores.postgresql.driver import PostgreSqlDriverSession
from support.endpoint import Endpoint
from support.faults.dead_sweeps import await_end_of
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

HOUR = 3_600
BATCH_ROWS = 3
MESSAGES = 8
LIMITS = BatchLimits(rows=BATCH_ROWS)


class KilledError(BaseException):
    """The process ends here."""


def kill(target: type, name: str, *, after: bool, time: int = 1) -> Callable[..., None]:
    """End the process before or after a step, the first or another time that it comes to it."""

    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        original, calls = getattr(target, name), Counter[str]()

        def killing(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            if calls[name] == time and not after:
                raise KilledError
            result = original(*arguments, **options)
            if calls[name] == time:
                raise KilledError
            return result

        monkeypatch.setattr(target, name, killing)

    return patch


# The table `changes` is there since the first command.
CREATING = {
    "after creating changes": kill(DeltaRsTables, "create", after=True),
    "before marking changes": kill(DeltaRsTables, "set_properties", after=False),
}
SETTLING = {
    "before close": kill(PostgreSqlDriverSession, "close_sweep", after=False),
    "after close": kill(PostgreSqlDriverSession, "close_sweep", after=True),
    "after seal": kill(PostgreSqlDriverSession, "seal", after=True),
    "after the first append": kill(Ledger, "append", after=True, time=1),
    "after changes": kill(Ledger, "append", after=True, time=2),
    "before delete": kill(PostgreSqlDriverSession, "delete_settled", after=False),
    "after delete": kill(PostgreSqlDriverSession, "delete_settled", after=True),
}
CANCELLING = {
    "after open": kill(PostgreSqlDriverSession, "open_command", after=True),
    "before hold": kill(PostgreSqlChangeSession, "hold", after=False),
    "after hold": kill(PostgreSqlChangeSession, "hold", after=True),
    "before commit": kill(PostgreSqlChangeSession, "cancel", after=True),
    "in the second batch": kill(PostgreSqlChangeSession, "cancel", after=True, time=2),
    **CREATING,
    **SETTLING,
}
RESTORING = {
    "before commit": kill(PostgreSqlChangeSession, "put_back", after=True),
    "in the second batch": kill(PostgreSqlChangeSession, "put_back", after=True, time=2),
    # What is restored has no tombstone, so there is one append.
    **{step: each for step, each in SETTLING.items() if step != "after changes"},
}


@pytest.fixture
def context(endpoint: Endpoint) -> SweepContext:
    """A store that was swept before, so that its ledger is there."""
    endpoint.set_up("Billing")
    context = endpoint.context()
    assert run_sweep(context).outcome == "done"
    return context


def ledger_of(context: SweepContext) -> Ledger:
    return open_ledger(context.ledger_root, context.ledger_writer, None, context.timeouts)


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


def killed(
    monkeypatch: pytest.MonkeyPatch,
    context: SweepContext,
    patch: Callable[[pytest.MonkeyPatch], None],
    run: Callable[[], object],
) -> None:
    """Run a command that is killed, and wait until the server has ended its sessions."""
    with monkeypatch.context() as patched:
        patch(patched)
        with pytest.raises(KilledError):
            run()
    await_end_of(context)


@pytest.mark.parametrize("step", CANCELLING)
def test_cancel_that_is_killed_is_settled_once_and_the_rest_waits(
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: Endpoint,
    context: SweepContext,
    ledger: LedgerReader,
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)

    killed(monkeypatch, context, CANCELLING[step], lambda: cancel(context, keys))
    run_sweep(context)

    cancelled = [row.message_key for row in ledger.rows("changes")] if has_changes(context) else []
    assert len(cancelled) == len(set(cancelled))
    assert sorted([*cancelled, *endpoint.waiting()]) == sorted(keys)
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(cancelled)
    is_before_all = step in {"after open", "before hold", "after hold", "before commit"}
    expected = {"in the second batch": BATCH_ROWS}.get(step, 0 if is_before_all else MESSAGES)
    assert len(cancelled) == expected
    for table in ("sweeps", "changes", "journal"):
        assert endpoint.fetch(f"SELECT FROM {endpoint.own_table(table)}") == []

    assert cancel(context, endpoint.waiting()).tally.changed == MESSAGES - expected
    assert endpoint.waiting() == []
    assert sorted(row.message_key for row in ledger.rows("changes")) == sorted(keys)


@pytest.mark.parametrize("step", ["before commit", "in the second batch", "before close"])
def test_reschedule_that_is_killed_has_moved_what_the_ledger_says(
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: Endpoint,
    context: SweepContext,
    ledger: LedgerReader,
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)
    reschedule = PostgreSqlChangeSession, "reschedule"
    steps = {
        "before commit": kill(*reschedule, after=True),
        "in the second batch": kill(*reschedule, after=True, time=2),
        "before close": SETTLING["before close"],
    }
    to_now = NewDue(Moment(offset=timedelta(seconds=-1)))
    work = reschedule_chosen(chosen(keys), LIMITS, to_now)

    killed(
        monkeypatch,
        context,
        steps[step],
        lambda: command(context, CommandName.RESCHEDULE, work),
    )
    done = run_sweep(context)

    moved = [row.message_key for row in ledger.rows("changes")] if has_changes(context) else []
    assert (
        len(moved)
        == done.dispatched
        == {
            "before commit": 0,
            "in the second batch": BATCH_ROWS,
            "before close": MESSAGES,
        }[step]
    )
    assert sorted([*moved, *endpoint.waiting()]) == sorted(keys)


@pytest.mark.parametrize("step", RESTORING)
def test_restore_that_is_killed_and_run_again_restores_each_message_once(
    step: str,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: Endpoint,
    context: SweepContext,
    ledger: LedgerReader,
) -> None:
    keys = endpoint.delay_many(MESSAGES, due_in_seconds=HOUR)
    assert cancel(context, keys).tally.changed == MESSAGES
    text = f"SELECT headers, body, due FROM {endpoint.delayed}"
    assert endpoint.fetch(text) == []

    killed(monkeypatch, context, RESTORING[step], lambda: restore_all(context))
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
