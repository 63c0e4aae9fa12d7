"""Replays of a store in memory: journalled and refused ones.

Whole commands are in tests/acceptance/test_errors_command.py and tests/golden.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count
from typing import Any, cast

import pytest

from duesweep.core.change import CommandName
from duesweep.core.errors import StoreError
from duesweep.core.exhausted import ErrorId, ErrorRow, KeptMessage
from duesweep.core.policy import BatchSize, Pause
from duesweep.core.times import Moment
from duesweep.operations.command import Tally
from duesweep.operations.exhausted import ExhaustedMessages
from duesweep.operations.replay import ChosenErrors, Replay
from duesweep.stores.sweeps import SweepRun
from duesweep_testing.builders import DUE, ENDPOINT, MESSAGE_TYPE, headers_text, message
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.memory_sessions import MemoryChangeSession
from duesweep_testing.sweeps import context_of, open_command


@dataclass(slots=True)
class _Ledger:
    """Stands in for the ledger."""

    messages: dict[ErrorId, KeptMessage] = field(default_factory=dict)
    changed: set[ErrorId] = field(default_factory=set)

    def done(self) -> set[ErrorId]:
        return self.changed

    def kept(self, chosen: Mapping[ErrorId, ErrorRow]) -> Iterator[tuple[ErrorId, KeptMessage]]:
        yield from [(error, kept) for error, kept in self.messages.items() if error in chosen]


class _World:
    """A store, and errors in its ledger."""

    def __init__(self, *destinations: str) -> None:
        self.store = MemoryStore()
        self.ledger = _Ledger()
        self.run: SweepRun = open_command(self.store)
        queue = MemoryQueue("Billing", "Shipping")
        self.context = context_of(self.store, queue, own_name=ENDPOINT)
        for number, destination in enumerate(destinations):
            self.add(ErrorId("sweep", f"k{number}"), destination)

    def add(self, error: ErrorId, destination: str = "Billing", text: str | None = None) -> None:
        text = headers_text(destination) if text is None else text
        self.ledger.messages[error] = KeptMessage(error.key, destination, {}, text, b"body")

    def work(
        self,
        to: str | None = None,
        due: Moment | None = None,
        *,
        again: bool = False,
    ) -> Replay:
        rows = {
            error: _row(error)._replace(destination=kept.destination)
            for error, kept in self.ledger.messages.items()
        }
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

    def journal(self) -> list[tuple[str, str, str | None]]:
        entries = self.store.changes.get(self.run.sweep_id, ())
        return [(one.change, one.message_key, one.of) for one in entries]

    @property
    def stored(self) -> list[str | None]:
        """The destinations of the messages in the store."""
        return [message(row).destination for row in self.store.rows.values()]


def _reasons(tallies: list[Tally]) -> dict[str, str]:
    """Why messages were not replayed, by key."""
    total = sum(tallies, Tally())
    assert total.refused == len(total.failures)
    return {failure.key: failure.reason for failure in total.failures}


def _row(error: ErrorId) -> ErrorRow:
    return ErrorRow(*error, "id", "Billing", 5, DUE, DUE, "x.Error", "text", MESSAGE_TYPE, DUE)


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
    assert list(chosen.by_id) == list(ids)
    named = _chosen("old", "id").by_id
    assert [row.key for row in named["old"].done_rows] == ["k2"]
    assert (len(named["id"].rows), named["id"].done_rows) == (2, [])


@pytest.mark.parametrize(("again", "done_before"), [(False, 1), (True, 0)])
def test_what_was_done_meanwhile_is_left_out_unless_again_is_asked_for(
    *, again: bool, done_before: int
) -> None:
    world = _World("Billing", "Billing")
    world.ledger.changed = {ErrorId("sweep", "k0")}

    total = sum(world.do(world.work(again=again)), Tally())

    again_there = 2 - done_before
    assert total == Tally(changed=again_there, gone=done_before)
    assert world.stored == ["Billing"] * again_there


def test_pause_does_not_hinder_a_replay_since_the_sweep_holds_it() -> None:
    world = _World("Billing", "Billing")
    world.store.pauses["*"] = Pause("*", DUE, None, "me", "it rests")

    assert world.do(world.work()) == [Tally(changed=2)]


def test_error_whose_queue_does_not_exist_stays_open() -> None:
    world = _World("Billing", "Nowhere")

    tallies = world.do(world.work())

    assert tallies == [Tally(changed=1, refused=1)]
    assert list(_reasons(tallies)) == ["k1"]
    assert (world.stored, [entry[1] for entry in world.journal()]) == (["Billing"], ["k0"])
    assert world.do(world.work("Shiping")) == [Tally(refused=2)]
    assert world.do(world.work("Shipping")) == [Tally(changed=2)]
    assert world.stored == ["Billing", "Shipping", "Shipping"]


def test_lost_store_leaves_whole_batches_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World("Billing", "Billing", "Billing")
    world.context = replace(world.context, batch_size=BatchSize(rows=2))
    put_back, calls = MemoryChangeSession.put_back, count()

    def fail(session: MemoryChangeSession, *arguments: Any) -> object:
        if next(calls):
            raise StoreError("gone", transient=True)
        return put_back(session, *arguments)

    monkeypatch.setattr(MemoryChangeSession, "put_back", fail)

    with pytest.raises(StoreError, match="gone"):
        world.do(world.work())

    assert [entry[1] for entry in world.journal()] == ["k0", "k1"]
    assert world.stored == ["Billing"] * 2


def test_batches_are_bounded_by_rows_and_bytes() -> None:
    world = _World(*["Billing"] * 5)
    size = len(headers_text("Billing")) + len(b"body")
    world.context = replace(world.context, batch_size=BatchSize(rows=2))
    assert [tally.changed for tally in world.do(world.work())] == [2, 2, 1]

    world.context = replace(world.context, batch_size=BatchSize(bytes=3 * size))
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
    assert list(_reasons(tallies)) == ["unreadable"]
