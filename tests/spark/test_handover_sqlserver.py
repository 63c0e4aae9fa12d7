"""A store on SQL Server is deferred as any other."""

from typing import TYPE_CHECKING

import pytest

from duesweep import wiring
from duesweep.drivers.rabbitmq import Brokers
from duesweep.engines.base import Engine
from duesweep.errors import ExitCode
from duesweep.handover import handover, preview
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.setup import RabbitMqSetup
from duesweep.queues.rabbitmq.topology import Style
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import settings

if TYPE_CHECKING:
    from support.sqlserver_server import SqlServerEndpoint


_YEAR_SECONDS = 31_536_000


@pytest.mark.parametrize("kind", ["sqlserver", "msmq", "sql-persistence"])
def test_due_messages_are_dispatched_and_the_others_deferred(
    engine: Engine, sqlserver_endpoint: "SqlServerEndpoint", broker: Broker, kind: str
) -> None:
    endpoint = sqlserver_endpoint.of_kind(kind)
    endpoint.set_up()
    brokers = Brokers((broker.url,), "queues.default")
    names = ("Sales.Orders", "Billing")
    RabbitMqSetup(brokers, Style.CONVENTIONAL, names, "url").install(rebind=False)
    endpoint.delay_many(30)
    endpoint.delay_many(20, due_in_seconds=_YEAR_SECONDS)
    context = wiring.handover_context(endpoint.config(**settings(broker)))

    found = preview(context)
    done = handover(engine, context)

    assert {entry.level: count for entry, count in found.items()} == {None: 30, 24: 20}
    assert (done.summary.dispatched, done.left, done.exit_code) == (50, 0, ExitCode.DONE)
    assert endpoint.waiting() == []
    assert (broker.count("Billing"), broker.count(ladder.level_name(24))) == (30, 20)
