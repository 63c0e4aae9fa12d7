"""`duesweep rabbitmq …` and sweeps on the tests' broker: settings, and commands in this process."""

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from duesweep.drivers.rabbitmq.connection import Brokers
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import RabbitMqSetup, Style
from support import commands
from support.commands import Ran
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker

LIB = Path(__file__).parents[3] / "lib"


def settings(broker: Broker, **more: object) -> dict[str, object]:
    """The configuration of an endpoint whose queues are on the broker."""
    return {"queues__default__kind": "rabbitmq", "queues__default__url": broker.url, **more}


def set_up(endpoint: Endpoint, broker: Broker, *names: str) -> None:
    """The endpoint's tables, and the delay ladder with these endpoints on the broker."""
    endpoint.set_up(**settings(broker))
    brokers = Brokers((broker.url,), "queues.default")
    own = (endpoint.name, *names)
    RabbitMqSetup(brokers, Style.CONVENTIONAL, own, "url").create()


def arguments(broker: Broker, *command: str, **settings: object) -> list[str]:
    """A command's arguments, with a file of settings; these ones of queues.default. A setting that
    is None is left out.
    """
    of_queues = {
        "kind": "rabbitmq",
        "url": broker.url,
        "management_url": broker.server.management_url,
    } | settings
    values = {
        # No test may connect to it.
        "store.dsn": "host=192.0.2.1",
        "store.endpoint": "Sales.Orders",
        "ledger.root": "/nonexistent",
        **{f"queues.default.{name}": value for name, value in of_queues.items()},
    }
    lines = [f"{name} = {json.dumps(v)}" for name, v in values.items() if v is not None]
    file = broker.server.folder / f"{uuid.uuid4().hex}.toml"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["rabbitmq", *command, "--config", str(file)]


def run(broker: Broker, *command: str, **settings: object) -> Ran:
    return commands.run(*arguments(broker, *command, **settings))


def in_ladder(broker: Broker) -> int:
    """How many messages wait on the delay ladder."""
    return sum(broker.count(topology.level_name(level)) for level in range(topology.LEVELS))


def process(broker: Broker, *command: str) -> Sequence[str]:
    """The command line to run it in a process of its own."""
    return [sys.executable, "-P", "-m", "duesweep", *arguments(broker, *command)]
