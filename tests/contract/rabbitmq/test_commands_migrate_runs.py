"""How a run of `delays migrate` goes: stopped, beside senders, looking only, and what it says."""

from collections import Counter

import pytest

from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.migration.report import LevelReport, MigrationReport
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import run
from support.rabbitmq.first_ladder import (
    create_first_ladder,
    delay,
    first_name,
)
from support.rabbitmq.migrations import Onlooker, counts, migrate, migration
from support.waiting import until

pytestmark = pytest.mark.usefixtures("_empty_ladders")


def test_stop_finishes_what_is_on_its_way(shared: Broker) -> None:
    for number in range(100):
        delay(shared, "Billing", message_id=f"{number}")

    first, second = MigrationReport(), MigrationReport()
    migration(shared, max_in_flight=20).run(first, Onlooker(batches=3))
    assert first.is_stopped
    assert 0 < first.moved < 100
    assert first.left == 100 - first.moved
    migration(shared).run(second, Onlooker())

    assert (first.moved + second.moved, second.left) == (100, 0)
    bodies = Counter(body for _, _, body in shared.take_all(topology.level_name(16), 100))
    assert bodies == Counter(str(number).encode() for number in range(100))


def test_messages_that_come_meanwhile_are_moved_but_not_for_ever(shared: Broker) -> None:
    class Sender(Onlooker):
        sent = 10

        def tell(self, level: LevelReport) -> None:
            # As many as were moved: it would never end.
            while level.queue == first_name(16) and self.sent < level.moved + 10:
                delay(shared, "Billing")
                self.sent += 1

    for _ in range(10):
        delay(shared, "Billing")
    report, sender = MigrationReport(), Sender()
    migration(shared).run(report, sender)

    assert report.moved >= 20
    assert report.moved + report.left == sender.sent
    assert counts(shared)[topology.level_name(16)] == report.moved


def test_dry_run_counts_and_moves_nothing(
    shared: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for seconds in (100_000, 100_000, 40):
        delay(shared, "Billing", seconds)
    before = counts(shared)

    assert run(shared, "delays", "migrate", "--dry-run") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{first_name(16)}: 2 waiting",
        f"{first_name(5)}: 1 waiting",
        "3 messages to migrate",
    ]
    assert counts(shared) == before


def test_lines_say_what_was_done(shared: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    delay(shared, "Billing")
    delay(shared, "Nowhere")

    assert run(shared, "delays", "migrate") == 3
    assert capsys.readouterr().out.splitlines() == [
        f"{first_name(16)}: 1 moved, 0 poison, 1 left",
        "1 left, for Nowhere: there is no queue Nowhere; run `duesweep rabbitmq endpoint create`",
        "All levels: 1 moved, 0 poison, 1 left",
    ]


def test_without_a_first_ladder_there_is_nothing_to_do(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in ([], ["--dry-run"]):
        assert run(broker, "delays", "migrate", *options) == 0
        assert "There is nothing to migrate" in capsys.readouterr().out
    assert broker.definitions()["queues"] == []


def test_missing_second_ladder_is_created_first(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    create_first_ladder(broker)
    broker.channel.confirm_delivery()
    broker.create("Billing")
    delay(broker, "Billing")
    # Until the management API has told of it, a count of 0 is that of before.
    until(lambda: broker.told_of_queues()[first_name(16)][2] == 1)

    assert migrate(broker, capsys)[0] == 0
    assert broker.count(topology.level_name(16)) == 1
    until(lambda: broker.told_of_queues()[first_name(16)][2] == 0)
    assert run(broker, "delays", "verify") == 0
