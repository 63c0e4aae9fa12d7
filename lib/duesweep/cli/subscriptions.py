"""`duesweep subscriptions …`: which endpoint subscribes to which topic."""

from typing import Annotated

import typer

from duesweep.cli.options import (
    AsJson,
    ConfigFile,
    Connection,
    OneDocument,
    Overrides,
    PrintSql,
)
from duesweep.core.errors import ExitCode

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Read and change the transport's table of subscriptions.",
)

# Equal to `SUBSCRIPTION_TABLE`, whose module is imported only when a command runs.
Table = Annotated[str, typer.Option("--table", help="The address of the table.")]
Topic = Annotated[str, typer.Argument(help="A topic: the full name of a message type.")]
Endpoint = Annotated[str, typer.Option("--endpoint", help="The name of the subscribing endpoint.")]
_DEFAULT_TABLE = "SubscriptionRouting"


@app.command()
def create(
    *,
    table: Table = _DEFAULT_TABLE,
    print_sql: PrintSql = False,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create the table if it does not exist.

    Example: duesweep subscriptions create
    """
    from duesweep.cli import queue_commands as commands

    if print_sql:
        target = commands.Target(config, settings, connection)
        return commands.print_script(target, ["create_subscriptions"], "subscriptions", table)
    with commands.open_session(commands.Target(config, settings, connection)) as session:
        session.subscriptions(table).create()
    commands.print_done(f"{table} exists", table=table, as_json=as_json)
    return ExitCode.DONE


@app.command("list")
def list_subscribers(
    topics: Annotated[list[str], typer.Argument(help="Topics: full names of message types.")],
    *,
    as_json: AsJson = False,
    table: Table = _DEFAULT_TABLE,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Print the addresses that are subscribed to any of these topics.

    Example: duesweep subscriptions list Sales.OrderPlaced
    """
    from duesweep.cli import queue_commands as commands

    with commands.open_session(commands.Target(config, settings, connection)) as session:
        addresses = session.subscriptions(table).subscribers(topics)
    commands.print_lines("address", addresses, as_json=as_json)
    return ExitCode.DONE


@app.command()
def add(
    topic: Topic,
    address: Annotated[str, typer.Argument(help="The queue for its messages.")],
    *,
    endpoint: Endpoint,
    table: Table = _DEFAULT_TABLE,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Subscribe an endpoint to a topic, or move its subscription to another address.

    Example: duesweep subscriptions add Sales.OrderPlaced Billing --endpoint Billing
    """
    from duesweep.cli import queue_commands as commands

    with commands.open_session(commands.Target(config, settings, connection)) as session:
        session.subscriptions(table).subscribe(endpoint, address, topic)
    commands.print_done(
        f"{endpoint} is subscribed to {topic}",
        endpoint=endpoint,
        topic=topic,
        address=address,
        as_json=as_json,
    )
    return ExitCode.DONE


@app.command()
def remove(
    topic: Topic,
    *,
    endpoint: Endpoint,
    table: Table = _DEFAULT_TABLE,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """End an endpoint's subscription to a topic.

    Example: duesweep subscriptions remove Sales.OrderPlaced --endpoint Billing
    """
    from duesweep.cli import queue_commands as commands

    with commands.open_session(commands.Target(config, settings, connection)) as session:
        was_there = session.subscriptions(table).unsubscribe(endpoint, topic)
    ended = "is no longer" if was_there else "was not"
    commands.print_done(
        f"{endpoint} {ended} subscribed to {topic}",
        endpoint=endpoint,
        topic=topic,
        was_subscribed=was_there,
        as_json=as_json,
    )
    return ExitCode.DONE
