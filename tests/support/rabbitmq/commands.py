"""`duesweep rabbitmq …` on the tests' broker."""

import sys
from collections.abc import Sequence
from pathlib import Path

from duesweep.cli.app import main
from support.rabbitmq.broker import Broker


def arguments(broker: Broker, *command: str, **settings: object) -> list[str]:
    """A command's arguments, with all settings on the command line; these ones of queues.default.
    A setting that is None is left out.
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
    options = [f"--set={name}={value}" for name, value in values.items() if value is not None]
    return ["rabbitmq", *command, *options]


def run(broker: Broker, *command: str, **settings: object) -> int:
    """Run it in this process; its exit code."""
    return main(arguments(broker, *command, **settings))


def process(broker: Broker, *command: str) -> Sequence[str]:
    """The command line to run it in a process of its own."""
    return [sys.executable, "-P", "-m", "duesweep", *arguments(broker, *command)]


LIB = Path(__file__).parents[3] / "lib"
