"""`duesweep subscriptions …`: which endpoint wants which topic."""

from typing import Annotated

import typer

from duesweep.cli.options import AsJson, ConfigFile, Connection, Overrides
from duesweep.errors import ExitCode

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Look after the transport's table of subscriptions.",
)

# The library's `SUBSCRIPTION_TABLE`, which is not imported before it is needed.
Table = Annotated[str, typer.Option("--table", help="The table, as the transport addresses it.")]
Topic = Annotated[str, typer.Argument(help="A topic: the full name of a type.")]
Endpoint = Annotated[str, typer.Option("--endpoint", help="The subscriber's endpoint name.")]
_DEFAULT_TABLE = "SubscriptionRouting"


@app.command()
def create(
    *,
    table: Table = _DEFAULT_TABLE,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create the table, unless it is there."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415 - not on the gate's way

    with commands.opened(commands.At(config, settings, connection)) as session:
        session.subscriptions(table).create()
    print(f"{table} is there")
    return ExitCode.DONE


@app.command("list")
def list_subscribers(  # noqa: PLR0913 - its options
    topics: Annotated[list[str], typer.Argument(help="Topics: full names of types.")],
    *,
    as_json: AsJson = False,
    table: Table = _DEFAULT_TABLE,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Print the addresses that subscribe to any of these topics."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    with commands.opened(commands.At(config, settings, connection)) as session:
        addresses = session.subscriptions(table).subscribers(topics)
    commands.print_lines("address", addresses, as_json=as_json)
    return ExitCode.DONE


@app.command()
def add(  # noqa: PLR0913 - its options
    topic: Topic,
    address: Annotated[str, typer.Argument(help="The queue that its messages are to go to.")],
    *,
    endpoint: Endpoint,
    table: Table = _DEFAULT_TABLE,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Subscribe an endpoint to a topic, or move its subscription to another address."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    with commands.opened(commands.At(config, settings, connection)) as session:
        session.subscriptions(table).subscribe(endpoint, address, topic)
    print(f"{endpoint} is subscribed to {topic}")
    return ExitCode.DONE


@app.command()
def remove(  # noqa: PLR0913 - its options
    topic: Topic,
    *,
    endpoint: Endpoint,
    table: Table = _DEFAULT_TABLE,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """End an endpoint's subscription to a topic."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    with commands.opened(commands.At(config, settings, connection)) as session:
        was_there = session.subscriptions(table).unsubscribe(endpoint, topic)
    ended = "is no longer" if was_there else "was not"
    print(f"{endpoint} {ended} subscribed to {topic}")
    return ExitCode.DONE
