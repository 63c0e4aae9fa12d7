"""Operators' commands at random moments, next to two sweeps, upkeep, and NServiceBus's mover."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from duesweep import Duesweep, ErrorFilter, MessageFilter, Moment
from duesweep.config.adapters.context import store_of
from duesweep.core.errors import DuesweepError
from duesweep.core.message import MESSAGE_ID
from duesweep.operations.audit import AuditReport
from duesweep.sweep.job import Engine
from support.endpoint import Endpoint
from support.faults.mover import Mover
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

DESTINATIONS = ("Billing", "Shipping", "Archive", "Nowhere")
SEED = 20_261_123
# One in this many messages comes due later.
LATER = 5


@pytest.mark.parametrize("messages", [1_000, pytest.param(20_000, marks=pytest.mark.long)])
def test_each_message_arrives_once_or_is_cancelled_whatever_operators_do(
    engine: Engine, endpoint: Endpoint, ledger: LedgerReader, messages: int
) -> None:
    endpoint.set_up(*DESTINATIONS[:3])
    soon = endpoint.delay_many(messages - messages // LATER, DESTINATIONS)
    later = endpoint.delay_many(messages // LATER, DESTINATIONS, due_in_seconds=3_600)
    ids = _message_ids(endpoint)
    config = endpoint.config(retry__max_attempts=1, retry__max_exhausted_per_sweep=messages)
    operator = _Operator(Duesweep(config), [*soon, *later])
    own_queue = endpoint.server.quoted(endpoint.addresses.own_queue)

    audits: list[AuditReport] = []

    with Mover(endpoint.dsn, endpoint.delayed, own_queue, pause_seconds=0.2) as mover:
        with (
            _repeating(lambda: _sweep(engine, endpoint)),
            _repeating(lambda: _sweep(engine, endpoint)),
            _repeating(lambda: audits.append(operator.commands.audit())),
            _repeating(operator.commands.maintain),
        ):
            operator.work(for_seconds=5 + messages / 1_000)
        operator.resume_all()
    operator.reschedule(operator.keys, Moment())
    while endpoint.waiting():
        _sweep(engine, endpoint)
    endpoint.create_queue("Nowhere")
    with suppress(_NothingToReplay):
        operator.replay("Billing")
    while endpoint.waiting():
        _sweep(engine, endpoint)

    audits.append(operator.commands.audit())
    assert [one for audit in audits for one in audit.suspects] == [], SEED
    assert len(audits) > 1
    assert audits[-1].sweeps
    changes = ledger.rows("changes")
    kinds = Counter(row.change for row in changes)
    assert {"cancelled", "rescheduled", "replayed"} <= set(kinds), (SEED, kinds)
    cancelled = {row.message_id for row in changes if row.change == "cancelled"}
    arrived = Counter(_arrived(endpoint))
    assert [one for one, count in arrived.items() if count > 1] == [], SEED
    assert cancelled.isdisjoint(arrived), SEED
    assert {*arrived, *cancelled} == ids, SEED

    # The ledger: each message left once, but for errors, which were replayed once.
    outcomes = Counter(row.outcome for row in ledger.rows("tombstones"))
    errors = {row.message_key for row in ledger.rows("errors")}
    replayed = [row.message_key for row in changes if row.change == "replayed"]
    assert outcomes["cancelled"] == len(cancelled) == kinds["cancelled"]
    assert outcomes["exhausted"] == len(errors)
    assert sorted(replayed) == sorted(errors)
    assert sum(outcomes.values()) + mover.moved == messages + len(replayed)
    assert all(row.body is not None for row in changes if row.change == "cancelled")


class _NothingToReplay(Exception):  # noqa: N818 - not a fault
    """No error is open."""


@dataclass
class _Operator:
    """An operator who gives commands at random, and is refused now and then."""

    commands: Duesweep
    keys: list[str]
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))

    def work(self, for_seconds: float) -> None:
        """Give one command after the other."""
        end = time.monotonic() + for_seconds
        acts: list[Callable[[], object]] = [
            lambda: self.cancel(self._some()),
            lambda: self.reschedule(self._some(), Moment(offset=self._soon())),
            lambda: self.pause(self.rng.choice(DESTINATIONS)),
            self.resume_all,
            lambda: self.replay("Archive"),
        ]
        while time.monotonic() < end:
            # Another replay may be under way, or a sweep may settle.
            with suppress(DuesweepError, _NothingToReplay):
                self.rng.choice(acts)()

    def cancel(self, keys: list[str]) -> None:
        self.commands.cancel(MessageFilter(keys=tuple(keys)), reason="at random")

    def reschedule(self, keys: list[str], to: Moment) -> None:
        self.commands.reschedule(MessageFilter(keys=tuple(keys)), to=to, reason="at random")

    def replay(self, to: str) -> None:
        report = self.commands.replay(ErrorFilter(), to=to, reason="at random", everything=True)
        if report.command_id is None:
            raise _NothingToReplay

    def pause(self, pattern: str) -> None:
        with store_of(self.commands.config).open_driver() as session:
            session.people.pause(pattern, None, "somebody@host", "at random")  # type: ignore[attr-defined]

    def resume_all(self) -> None:
        with store_of(self.commands.config).open_driver() as session:
            for pause in session.due.pauses():  # type: ignore[attr-defined]
                session.people.resume(pause.pattern)  # type: ignore[attr-defined]

    def _some(self) -> list[str]:
        return self.rng.sample(self.keys, 20)

    def _soon(self) -> timedelta:
        return timedelta(seconds=self.rng.choice([0, 0.5, 1.5]))


def _sweep(engine: Engine, endpoint: Endpoint) -> None:
    config = endpoint.config(retry__max_attempts=1, retry__max_exhausted_per_sweep=100_000)
    run_sweep(config, engine)


@contextmanager
def _repeating(act: Callable[[], object]) -> Iterator[None]:
    """Do it again and again in a thread, while the block runs."""
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            with suppress(DuesweepError):
                act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(120)
        assert not thread.is_alive()


def _message_ids(endpoint: Endpoint) -> set[str]:
    rows = endpoint.fetch(f"SELECT headers FROM {endpoint.delayed}")
    return {json.loads(row.headers)[MESSAGE_ID] for row in rows}


def _arrived(endpoint: Endpoint) -> Iterator[str]:
    """The message ids in all queues."""
    for address in (*DESTINATIONS, endpoint.name):
        for row in endpoint.queue_rows(address):
            yield json.loads(row.headers)[MESSAGE_ID]
