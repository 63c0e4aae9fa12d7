"""Messages that fail: back-off, the last attempt, the limit, the error queue."""

import json

import pytest

from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    MessageError,
    QueueNotFoundError,
    RefusedMessageError,
)
from duesweep.core.message import (
    EXCEPTION_TYPE,
    FAILED_QUEUE,
    STACK_TRACE,
    UNREADABLE_HEADERS,
    Message,
)
from duesweep.core.policy import BatchSize, Retry
from duesweep.stores import tombstone
from duesweep_testing.builders import DUE, DelayedRow, delayed_row
from duesweep_testing.journal import BatchEntry
from support.contract.memory_stores import DueKeyStore
from support.dispatch_world import World, one, slice_end, world_of

_LONGEST_STACK = 250


def _stack_length(message: Message) -> int:
    assert not isinstance(message.headers, MessageError)
    return len(message.headers[STACK_TRACE] or "")


def test_unknown_destination_fails_with_backoff_and_is_exhausted_at_the_last_attempt() -> None:
    row = delayed_row("Nowhere")
    world = world_of(row, retry=Retry(max_attempts=3, initial_seconds=100, max_seconds=1_000))

    first = world.sweep()
    counter = world.store.attempts[row.key]
    waited = counter.next_attempt_at / 1_000_000 - world.store.clock.seconds()
    world.store.clock.advance(74)
    too_early = world.sweep()
    world.store.clock.advance(27)
    second = world.sweep()
    world.store.clock.advance(201)
    third = world.sweep()

    assert counter.attempts == 1
    assert 75 <= waited <= 100
    failed = [world.counted(run)[1] for run in (first, too_early, second, third)]
    assert failed == [1, 0, 1, 0]
    (gone,) = world.exhausted(third)
    assert (gone.message_key, gone.attempts, gone.queue) == (row.key, 3, None)
    assert (gone.headers, gone.body) == (row.headers, row.body)
    assert gone.destination == "Nowhere"
    assert gone.error_class == "duesweep.errors.QueueNotFoundError"
    assert gone.error_text == "There is no queue Nowhere"
    assert world.store.rows == {}
    assert world.store.attempts == {}


def test_failure_that_another_attempt_does_not_mend_is_the_last_one() -> None:
    gone, refused = delayed_row("Nowhere"), delayed_row("Billing")
    world = world_of(gone, refused, retry=Retry(non_retryable=(QueueNotFoundError,)))
    world.trouble("Billing", RefusedMessageError("too long"))

    run = world.sweep()

    assert [(each.message_key, each.attempts) for each in world.exhausted(run)] == [(gone.key, 1)]
    assert list(world.store.attempts) == [refused.key]


def test_message_that_failed_takes_no_claim_key_of_another_one_with_its_due() -> None:
    """It is eligible again at once, and comes first."""
    rows = [delayed_row(name, due=DUE) for name in ("Nowhere", "Billing", "Nowhere", "Billing")]
    world = World(DueKeyStore(rows))
    keys = [str(row.due_us) for row in rows]

    run = world.sweep(keys, batch_size=BatchSize(rows=1), retry=Retry(initial_seconds=0))

    assert len(world.queue.arrived["Billing"]) == 2
    assert [counter.attempts for counter in world.store.attempts.values()] == [1, 1]
    assert world.ends(run) == [slice_end(given=4, claimed=4)]


def test_message_that_failed_before_is_delivered_with_its_attempts_counted() -> None:
    row = delayed_row("Late")
    world = world_of(row, retry=Retry(initial_seconds=0))
    world.sweep()
    world.queue.arrived["Late"] = []

    run = world.sweep()

    assert world.queue.arrived["Late"] == [one(row)]
    (batch, _) = world.store.journal[run.sweep_id]
    assert isinstance(batch, BatchEntry)
    assert batch.outcomes is not None
    assert batch.attempts_changed
    assert tombstone.decode(batch.outcomes).to_pylist()[0]["attempts"] == 2
    assert world.store.attempts == {}


def test_limit_of_exhausted_messages_keeps_the_rest_in_the_store() -> None:
    world = world_of(
        *[delayed_row("Nowhere") for _ in range(5)],
        retry=Retry(max_attempts=1, max_exhausted_per_sweep=3),
    )

    run = world.sweep(batch_size=BatchSize(rows=2))

    assert len(world.exhausted(run)) == 3
    assert len(world.store.rows) == len(world.store.attempts) == 2
    assert world.counted(run) == (0, 2)
    sweep = world.store.sweeps[run.sweep_id]
    assert (sweep.exhausted, sweep.over_limit) == (3, 2)


def test_exhausted_message_lies_in_the_error_queue_as_well() -> None:
    unknown, unreadable = delayed_row("Nowhere"), DelayedRow(headers="{")
    world = world_of(unknown, unreadable, retry=Retry(max_attempts=1, error_queue="error"))

    run = world.sweep()

    sent = [json.loads(one.headers) for one in world.queue.arrived["error"]]
    by_error = {headers[EXCEPTION_TYPE]: headers for headers in sent}
    assert by_error["duesweep.errors.QueueNotFoundError"][FAILED_QUEUE] == "Nowhere"
    poison = by_error["duesweep.errors.UnreadableHeadersError"]
    assert (poison[UNREADABLE_HEADERS], poison[FAILED_QUEUE]) == ("{", "Sales.Orders")
    assert {e.message_key: e.queue for e in world.exhausted(run)} == {
        unknown.key: "error",
        unreadable.key: "error",
    }
    assert {e.headers for e in world.exhausted(run)} == {unknown.headers, "{"}
    assert world.store.rows == {}


def test_error_queue_gets_no_message_that_the_limit_keeps_in_the_store() -> None:
    rows = [delayed_row("Nowhere") for _ in range(3)]
    retry = Retry(max_attempts=1, max_exhausted_per_sweep=1, error_queue="error")
    world = world_of(*rows, retry=retry)

    run = world.sweep()

    assert len(world.queue.arrived["error"]) == 1
    assert [e.queue for e in world.exhausted(run)] == ["error"]
    assert world.counted(run) == (0, 2)
    assert world.store.sweeps[run.sweep_id].over_limit == 2


@pytest.mark.parametrize(
    "trouble",
    [
        DestinationError("error is locked"),
        RefusedMessageError("error is full", copy_may_pass=True),
        QueueNotFoundError("There is no queue error"),
    ],
    ids=["is locked", "is full", "is gone"],
)
def test_error_queue_that_takes_nothing_now_leaves_the_message_and_counts_no_attempt(
    trouble: DuesweepError,
) -> None:
    row, good = delayed_row("Nowhere"), delayed_row("Billing")
    world = world_of(row, good, retry=Retry(max_attempts=1, error_queue="error"))
    world.trouble("error", trouble)

    run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(good)]
    assert (list(world.store.rows), world.store.attempts) == ([row.key], {})
    assert world.exhausted(run) == []
    assert world.counted(run) == (1, 0)


def test_message_that_the_error_queue_does_not_take_now_stays_also_if_it_takes_others() -> None:
    taken, left = delayed_row("Nowhere"), delayed_row("Nowhere")
    world = world_of(taken, left, retry=Retry(max_attempts=1, error_queue="error"))
    full = RefusedMessageError("error is full", copy_may_pass=True)
    world.queue.trouble["error"] = lambda message: full if message.key == left.key else None

    run = world.sweep()

    assert (list(world.store.rows), world.store.attempts) == ([left.key], {})
    assert {gone.message_key: gone.queue for gone in world.exhausted(run)} == {taken.key: "error"}


def test_message_that_the_error_queue_refuses_ends_without_the_copy() -> None:
    row, good = delayed_row("Nowhere"), delayed_row("Billing")
    world = world_of(row, good, retry=Retry(max_attempts=1, error_queue="error"))
    world.trouble("error", RefusedMessageError("error takes no long headers"))

    run = world.sweep()

    assert world.queue.arrived["Billing"] == [one(good)]
    assert world.store.rows == {}
    (gone,) = world.exhausted(run)
    assert (gone.message_key, gone.queue) == (row.key, None)
    assert gone.error_text.endswith(
        "; the error queue refused the message: error takes no long headers"
    )


def test_error_queue_gets_a_shorter_copy_of_a_message_that_it_refused() -> None:
    row = delayed_row("Nowhere")
    world = world_of(row, retry=Retry(max_attempts=1, error_queue="error"))

    refused = RefusedMessageError("too long")
    stack = _stack_length
    world.queue.trouble["error"] = lambda m: refused if stack(m) > _LONGEST_STACK else None

    run = world.sweep()

    (gone,) = world.exhausted(run)
    assert (gone.queue, "refused" in gone.error_text) == ("error", False)
    assert len(world.queue.arrived["error"]) == 1


def test_error_queue_that_is_gone_leaves_its_messages_and_says_so() -> None:
    row = delayed_row("Nowhere")
    world = world_of(row, retry=Retry(max_attempts=1, error_queue="gone"))

    run = world.sweep()

    assert (list(world.store.rows), world.store.attempts) == ([row.key], {})
    assert world.ends(run) == [slice_end("There is no queue gone", given=1, left=1)]


def test_own_queue_that_is_gone_does_not_keep_exhausted_messages_from_the_error_queue() -> None:
    row = delayed_row(None)
    world = world_of(row, retry=Retry(max_attempts=1, error_queue="error"))
    del world.queue.arrived["Sales.Orders"]

    run = world.sweep()

    assert [e.queue for e in world.exhausted(run)] == ["error"]
    assert len(world.queue.arrived["error"]) == 1
    assert world.ends(run) == [slice_end(given=1, claimed=1)]
