"""Replays of a store and queues in memory: journalled and refused ones.

Whole commands are in tests/acceptance/test_errors_command.py and tests/golden.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import cast

import pytest

from duesweep.core.change import ChangeKind, CommandName
from duesweep.core.errors import (
    DestinationError,
    DuesweepError,
    RefusedMessageError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.exhausted import ErrorId, ErrorRow, KeptMessage
from duesweep.core.message import Message
from duesweep.core.policy import (
    CLAIM_SECONDS,
    BatchLimits,
    Pause,
    RateLimit,
    RateLimits,
)
from duesweep.core.times import Moment
from duesweep.core.world import SettableClock
from duesweep.operations.change import Tally
from duesweep.operations.errors import ExhaustedMessages, Fate
from duesweep.operations.replay import ChosenErrors, Replay
from duesweep.stores.base import SweepRun
from duesweep_testing.builders import DUE, ENDPOINT, MESSAGE_TYPE, headers_text
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_sessions import MemoryChangeSession
from duesweep_testing.sweeps import context_of, open_command
from support.delivery_world import LateQueue

_FATE = Fate(ChangeKind.REPLAYED, DUE, "me", None, None, "command")


@dataclass(slots=True)
class _Ledger:
    """Stands in for the ledger."""

    messages: dict[ErrorId, KeptMessage] = field(default_factory=dict)
    done: dict[ErrorId, Fate] = field(default_factory=dict)

    def fates(self) -> dict[ErrorId, Fate]:
        return self.done

    def kept(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        yield from [(error, kept) for error, kept in self.messages.items() if error in chosen]


class _World:
    """A store, its queues, and errors in its ledger."""

    def __init__(self, *destinations: str, **queue: bool) -> None:
        self.store = MemoryStore()
        self.queue = MemoryQueue("Billing", "Shipping", **queue)
        self.ledger = _Ledger()
        self.run: SweepRun = open_command(self.store)
        self.clock = SettableClock()
        self.context = context_of(self.store, self.queue, self.clock, own_name=ENDPOINT)
        for number, destination in enumerate(destinations):
            self.add(ErrorId("sweep", f"k{number}"), destination)

    def add(self, error: ErrorId, destination: str = "Billing", text: str | None = None) -> None:
        text = headers_text(destination) if text is None else text
        self.ledger.messages[error] = KeptMessage(error.key, destination, {}, text, b"body")

    def work(
        self, to: str | None = None, due: Moment | None = None, *, again: bool = False
    ) -> Replay:
        rows = {error: _row(error) for error in self.ledger.messages}
        messages = cast(ExhaustedMessages, self.ledger)
        chosen = ChosenErrors(
            command=CommandName.REPLAY,
            source="s",
            would_change=len(rows),
            gone=0,
            rows=rows,
            again=again,
        )
        return Replay(self.context, messages, chosen, to, due)

    def do(self, work: Replay) -> list[Tally]:
        """The outcomes of batches with a failure or a change."""
        tallies = work(MemoryChangeSession(self.store), self.run)
        return [tally for tally in tallies if tally != Tally()]

    def journal(self) -> list[tuple[str, str, str | None, str | None]]:
        entries = self.store.changes[self.run.sweep_id]
        return [(one.change, one.message_key, one.of, one.queue) for one in entries]

    @property
    def arrived(self) -> dict[str, int]:
        return {name: len(there) for name, there in self.queue.arrived.items() if there}


def _reasons(tallies: list[Tally]) -> dict[str, str]:
    """Why messages were not replayed, by key."""
    total = sum(tallies, Tally())
    assert total.refused == len(total.failures)
    return {failure.key: failure.reason for failure in total.failures}


def _row(error: ErrorId) -> ErrorRow:
    return ErrorRow(error, "id", MESSAGE_TYPE, "Billing", 5, DUE, DUE, "x.Error", "text")


_KEY = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"


def _chosen(*ids: str) -> ChosenErrors:
    """Of three errors with message id `id`, of which one was replayed before."""
    open_ones = [_row(ErrorId("sweep", key)) for key in ("k0", _KEY)]
    done = _row(ErrorId("sweep", "k2"))._replace(message_id="old")
    return ChosenErrors(
        command=CommandName.REPLAY,
        source="s",
        would_change=2,
        gone=1,
        rows={row.id: row for row in open_ones},
        done_rows={done.id: done},
        ids=ids,
    )


@pytest.mark.parametrize(
    ("ids", "is_exact", "is_whole"),
    [
        ((), False, True),
        (("k0",), True, True),
        ((_KEY.upper(), "k0"), True, True),
        (("id",), False, True),
        (("k0", "k2"), True, False),
        (("old",), True, False),
        (("nobody",), True, False),
    ],
)
def test_ids_are_exact_unless_one_means_several_and_whole_if_each_means_one_to_do(
    ids: tuple[str, ...], *, is_exact: bool, is_whole: bool
) -> None:
    chosen = _chosen(*ids)

    assert (chosen.is_exact, chosen.is_done(changed=2, gone=0)) == (is_exact, is_whole)
    assert [row.id.key for row in chosen.named_before("old")] == ["k2"]
    assert len(chosen.named("id")) == 2


@pytest.mark.parametrize(("again", "done_before"), [(False, 1), (True, 0)])
def test_what_was_done_meanwhile_is_left_out_unless_again_is_asked_for(
    *, again: bool, done_before: int
) -> None:
    world = _World("Billing", "Billing")
    world.ledger.done = {ErrorId("sweep", "k0"): _FATE}

    total = sum(world.do(world.work(again=again)), Tally())

    sent = 2 - done_before
    assert total == Tally(changed=sent, gone=done_before)
    assert world.arrived == {"Billing": sent}


def test_refused_message_and_destination_that_takes_nothing_are_not_journalled() -> None:
    world = _World("Billing", "Billing", "Shipping")

    def refuse(message: Message) -> DuesweepError | None:
        return RefusedMessageError("too large") if message.key == "k0" else None

    world.queue.trouble = {"Billing": refuse, "Shipping": lambda _: DestinationError("it rests")}

    tallies = world.do(world.work())

    assert tallies == [Tally(changed=1, refused=2)]
    assert _reasons(tallies) == {"k0": "too large", "k2": "it rests"}
    assert [entry[1] for entry in world.journal()] == ["k1"]


@pytest.mark.parametrize("pattern", ["Bill*", "*"])
def test_paused_destination_gets_nothing_and_its_errors_stay_open(pattern: str) -> None:
    world = _World("Billing", "Billing")
    world.store.pauses[pattern] = Pause(pattern, DUE, None, "me", "it rests")

    tallies = world.do(world.work())

    assert tallies == [Tally(refused=2)]
    assert (world.arrived, world.journal()) == ({}, [])
    assert all("paused" in reason for reason in _reasons(tallies).values())
    # To another destination they may go, unless that is also paused.
    changed = sum(tally.changed for tally in world.do(world.work("Shipping")))
    assert changed == (0 if pattern == "*" else 2)


def test_limit_of_a_destination_holds_for_replays_and_the_others_do_not_wait() -> None:
    world = _World(*["Billing"] * 6, "Shipping")
    limits = RateLimits((RateLimit("Bill*", 50),))
    world.context = replace(world.context, rate_limits=limits)
    began = world.clock.seconds()
    sent_at: list[float] = []

    def note(_: Message) -> None:
        sent_at.append(world.clock.seconds() - began)

    world.queue.trouble = {"Billing": note}
    tallies = world.do(world.work())

    # Two at once, and then two after each time that two of them take.
    assert tallies == [Tally(changed=1), *[Tally(changed=2)] * 3]
    assert world.arrived == {"Billing": 6, "Shipping": 1}
    assert sent_at[-1] >= 4 / 50


def test_messages_that_were_not_reached_in_time_go_on_as_long_as_others_arrive() -> None:
    names = ("Billing", "Shipping", "Archive", "Mails", "Orders")
    world = _World(*names)
    world.queue = MemoryQueue(*names)
    world.context = replace(world.context, queue=world.queue)
    slow = dict.fromkeys(names, lambda _: world.clock.sleep(2 * CLAIM_SECONDS))
    world.queue.trouble = slow

    tallies = world.do(world.work())

    assert tallies == [Tally(changed=5)]
    assert world.arrived == dict.fromkeys(names, 1)


class _OpenQueue(LateQueue):
    """A queue and its session."""

    @contextmanager
    def open(self, _: object) -> Iterator["_OpenQueue"]:
        yield self


def test_message_without_an_answer_may_have_arrived_whatever_becomes_of_it_later() -> None:
    world = _World("Billing", "Shipping")
    queue = _OpenQueue(silent={"k0", "k1"})
    world.context = replace(world.context, queue=cast(MemoryQueue, queue))
    asked: list[str] = []

    def refuse_the_second_time(step: str) -> None:
        asked.append(step)
        if asked.count("deliver") == 3:
            queue.trouble["deliver", "Billing"] = DestinationError("it rests")

    queue.on_step = refuse_the_second_time

    tallies = world.do(world.work())

    assert tallies == [Tally(refused=2)]
    no_answer = "The queue did not say whether the message arrived: it may have"
    assert _reasons(tallies) == {"k0": f"{no_answer}; then: it rests", "k1": no_answer}
    assert [address for address, _ in queue.delivered].count("Shipping") == 3
    assert world.journal() == []


def test_batch_is_delivered_again_if_the_server_rolled_it_back() -> None:
    world = _World("Billing", "Billing", own_transaction=True)
    lost = iter([TransactionLostError("deadlock")])
    world.queue.trouble = {"Billing": lambda _: next(lost, None)}

    assert world.do(world.work()) == [Tally(changed=2)]
    assert world.arrived == {"Billing": 2}
    assert len(world.journal()) == 2


def test_lost_service_leaves_whole_batches_in_the_journal() -> None:
    world = _World("Billing", "Billing", "Billing")
    world.context = replace(world.context, limits=BatchLimits(rows=2))

    def fail(message: Message) -> DuesweepError | None:
        return StoreError("gone", transient=True) if message.key == "k2" else None

    world.queue.trouble = {"Billing": fail}

    with pytest.raises(StoreError, match="gone"):
        world.do(world.work())

    assert [entry[1] for entry in world.journal()] == ["k0", "k1"]
    assert world.arrived == {"Billing": 2}


def test_messages_with_one_key_are_in_batches_of_their_own() -> None:
    # Answers come by keys: one batch would take the answer for one as that for the other.
    world = _World("Nowhere")
    world.add(ErrorId("later sweep", "k0"), "Billing")

    tallies = world.do(world.work())

    assert tallies == [Tally(refused=1), Tally(changed=1)]
    assert [failure.sweep_id for failure in tallies[0].failures] == ["sweep"]
    assert world.journal() == [("replayed", "k0", "later sweep", "Billing")]


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    world = _World(*["Billing"] * 5)
    size = len(headers_text("Billing")) + len(b"body")
    world.context = replace(world.context, limits=BatchLimits(rows=2))
    assert [tally.changed for tally in world.do(world.work())] == [2, 2, 1]

    world.context = replace(world.context, limits=BatchLimits(bytes=3 * size))
    assert [tally.changed for tally in world.do(world.work())] == [3, 2]


def test_error_that_the_ledger_has_lost_is_told() -> None:
    world = _World("Billing")
    work = world.work()
    world.ledger.messages.clear()

    tallies = world.do(work)

    assert tallies == [Tally(refused=1)]
    assert _reasons(tallies) == {"k0": "The ledger does not have it any more"}


def test_messages_are_put_back_with_a_new_due() -> None:
    world = _World("Billing")
    world.add(ErrorId("sweep", "unreadable"), text="{broken")

    tallies = world.do(world.work(due=Moment(offset=timedelta(hours=1))))

    assert tallies == [Tally(changed=1, refused=1)]
    (row,) = world.store.rows.values()
    assert row.due == world.run.horizon.server_time + timedelta(hours=1)
    kept = world.ledger.messages[ErrorId("sweep", "k0")]
    assert (row.headers, row.body) == (kept.headers_text, b"body")
    (entry,) = world.store.changes[world.run.sweep_id]
    assert (entry.new_key, entry.of) == (row.key, "sweep")
    assert world.arrived == {}
    assert list(_reasons(tallies)) == ["unreadable"]
