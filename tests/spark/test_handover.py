"""A handover empties a store: it dispatches due messages, and defers all others."""

import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from duesweep import Duesweep
from duesweep.config.adapters.context import handover_context
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.operations.handover import Destined, hand_over
from duesweep.queues.rabbitmq import topology
from duesweep.sweep.job import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up, settings
from support.sweeps import run_sweep

_BEYOND_SECONDS = topology.LONGEST_DELAY_SECONDS + 3_600
_YEAR_SECONDS = 31_536_000
_ON_EACH_KIND = pytest.mark.parametrize(
    "endpoint",
    ["postgresql", "sqlserver", "sqlserver msmq", "sqlserver sql-persistence"],
    indirect=True,
)


@_ON_EACH_KIND
def test_due_messages_are_dispatched_and_the_others_deferred(
    engine: Engine, endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing", "Shipping")
    endpoint.delay_many(30, ("Billing", "Shipping"))
    endpoint.delay_many(20, ("Billing", "Shipping"), due_in_seconds=_YEAR_SECONDS)
    # On level 8 for as long as it takes to come here: 256 seconds are left, or more.
    soon = endpoint.delay(due_in_seconds=500)
    beyond = endpoint.delay(due_in_seconds=_BEYOND_SECONDS)
    context = handover_context(endpoint.config(**settings(broker)))

    done = hand_over(engine, context)

    assert (done.report.dispatched, done.report.failed, done.left) == (51, 0, 1)
    assert done.exit_code is ExitCode.WORK_LEFT
    assert endpoint.waiting() == [beyond]
    outcomes = Counter(row["outcome"] for row in ledger.rows("tombstones"))
    assert outcomes == {"dispatched": 30, "deferred": 21}
    level = topology.level_name(24)
    assert broker.count(level) == 20
    assert broker.count(topology.level_name(8)) == 1
    assert len(broker.take_all("Billing", 15)) == 15
    assert broker.count("Shipping") == 15
    (late,) = [row for row in ledger.rows("tombstones") if row["message_key"] == soon]
    assert 0 <= late["lateness_ms"] < 1_000


@_ON_EACH_KIND
def test_preview_counts_by_destination_and_level_and_moves_nothing(
    endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(7)
    endpoint.delay_many(5, due_in_seconds=600)
    endpoint.delay_many(3, ("Nowhere",), due_in_seconds=600)
    endpoint.delay(due_in_seconds=_BEYOND_SECONDS)
    endpoint.delay(headers="{")
    waiting = endpoint.waiting()

    found = Duesweep(endpoint.config(**settings(broker))).preview_handover()

    assert found.exit_code is ExitCode.MESSAGES_FAILED
    placed = [one for one in found.destinations if not one.problem]
    assert placed == [Destined("Billing", None, None, 7), Destined("Billing", 9, None, 5)]
    problems = {one.problem: one.messages for one in found.destinations if one.problem}
    assert sorted(problems.values()) == [1, 1, 3]
    assert any("Nowhere" in str(problem) for problem in problems)
    assert endpoint.waiting() == waiting
    assert broker.count("Billing") == 0
    for table in ("journal", "sweeps"):
        assert endpoint.fetch(f"SELECT 1 AS one FROM {endpoint.own_table(table)}") == []


def test_what_is_due_before_the_cutoff_is_left(
    engine: Engine, endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker, "Billing")
    before = [endpoint.delay(), endpoint.delay(due_in_seconds=600)]
    endpoint.delay_many(4, due_in_seconds=_YEAR_SECONDS)
    context = handover_context(endpoint.config(**settings(broker)))
    cutoff = datetime.now(UTC) + timedelta(hours=1)

    done = hand_over(engine, context, cutoff)

    assert (done.report.dispatched, done.left, done.exit_code) == (4, 0, ExitCode.DONE)
    assert sorted(endpoint.waiting()) == sorted(before)


def test_messages_that_are_not_due_are_not_charged_for_a_missing_queue(
    engine: Engine, endpoint: Endpoint, broker: Broker
) -> None:
    set_up(endpoint, broker, "Billing")
    early = endpoint.delay("Nowhere", due_in_seconds=600)
    context = handover_context(endpoint.config(**settings(broker)))

    done = hand_over(engine, context)

    assert (done.report.failed, done.left, done.exit_code) == (0, 1, ExitCode.WORK_LEFT)
    assert endpoint.waiting() == [early]
    assert endpoint.attempts() == {}


def test_queues_that_hold_nothing_back_are_refused(engine: Engine, endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")

    with pytest.raises(ConfigError, match="rabbitmq"):
        hand_over(engine, handover_context(endpoint.config()))


def test_broker_without_a_ladder_is_refused_before_anything_is_moved(
    endpoint: Endpoint, broker: Broker
) -> None:
    endpoint.set_up(**settings(broker))
    broker.api("exchanges/{vhost}/" + topology.DELIVERY_EXCHANGE, "DELETE")

    context = handover_context(endpoint.config(**settings(broker)))
    with context.store.open_driver() as store, pytest.raises(ConfigError, match="delays create"):
        context.queue.check(None, store)


def test_sweep_that_looks_ahead_hands_over_what_comes_due_before_the_next(
    engine: Engine, endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    set_up(endpoint, broker, "Billing")
    endpoint.delay_many(10)
    began = time.monotonic()
    near = [endpoint.delay(due_in_seconds=seconds) for seconds in (2.5, 4)]
    far = endpoint.delay(due_in_seconds=600)

    summary = run_sweep(endpoint, engine, **settings(broker, sweep__look_ahead_seconds=30))

    assert (summary.dispatched, summary.failed, summary.left) == (12, 0, 0)
    assert endpoint.waiting() == [far]
    handed = {r["message_key"] for r in ledger.rows("tombstones") if r["outcome"] == "deferred"}
    assert handed <= set(near)
    taken = broker.take_all("Billing", 12)
    assert time.monotonic() - began >= 4
    assert len({properties.message_id for _, properties, _ in taken}) == len(taken) == 12
