"""`duesweep rabbitmq …` on the tests' broker."""

import json
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from duesweep.cli.app import main
from support.rabbitmq.broker import Broker


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


def run(broker: Broker, *command: str, **settings: object) -> int:
    """Run it in this process; its exit code."""
    return main(arguments(broker, *command, **settings))


def process(broker: Broker, *command: str) -> Sequence[str]:
    """The command line to run it in a process of its own."""
    return [sys.executable, "-P", "-m", "duesweep", *arguments(broker, *command)]


LIB = Path(__file__).parents[3] / "lib"
