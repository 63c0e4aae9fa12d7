"""`duesweep queue …`: the transport's operations on one queue."""

from pathlib import Path
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
    help="Create, fill, read and purge queues as the endpoint's transport does.",
)

Address = Annotated[str, typer.Argument(help="The address of a queue.")]
BatchSize = Annotated[
    int, typer.Option(help="The number of messages that one transaction removes.")
]


@app.command()
def create(
    address: Address,
    *,
    readable_body: Annotated[
        bool, typer.Option("--readable-body", help="Add a column with the body as text.")
    ] = False,
    print_sql: PrintSql = False,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create a queue table if it does not exist.

    Example: duesweep queue create Billing
    """
    from duesweep.cli import queue_commands as commands

    if print_sql:
        target = commands.Target(config, settings, connection)
        names = ["create_queue", *(["add_body_string"] if readable_body else [])]
        return commands.print_script(target, names, "queue", address)
    with commands.open_session(commands.Target(config, settings, connection)) as session:
        queue = session.queue(address)
        queue.create(readable_body=readable_body)
        commands.print_done(f"{queue.destination} exists", queue=queue.destination, as_json=as_json)
    return ExitCode.DONE


@app.command()
def send(  # noqa: PLR0913 - its options
    address: Address,
    *,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    body: Annotated[str | None, typer.Option(help="The body, as text in UTF-8.")] = None,
    body_file: Annotated[
        Path | None, typer.Option(help="A file with the body; - for standard input.")
    ] = None,
    time_to_be_received: Annotated[
        str | None, typer.Option(help="The time until it expires, as in 30s; not with --delay.")
    ] = None,
    delay: Annotated[
        str | None,
        typer.Option(help="Send it after this time, as in 1d2h3m4s5ms, through the delayed table."),
    ] = None,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Send a message, now or later.

    Example: duesweep queue send Billing --header Colour=blue --body '{}' --delay 30s
    """
    from duesweep.cli import queue_commands as commands

    message = commands.build_message(
        header or [], commands.read_body(body, body_file), time_to_be_received, delay
    )
    target = commands.Target(config, settings, connection)
    if message.delay is not None:
        commands.require_delayed_table(target)
    with commands.open_session(target) as session:
        queue = session.queue(address)
        queue.send(message)
        done = "stored for" if message.delay is not None else "sent to"
        commands.print_done(
            f"{done} {queue.destination}",
            queue=queue.destination,
            delayed=message.delay is not None,
            as_json=as_json,
        )
    return ExitCode.DONE


@app.command()
def receive(
    address: Address,
    *,
    count: Annotated[int, typer.Option(min=1, help="The maximum number of messages.")] = 1,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Remove messages from a queue and print them. A message that cannot be read is moved to the
    queue of retry.error_queue, or stays if that is not set.

    Example: duesweep queue receive Billing --count 10 --json
    """
    from duesweep.cli import queue_commands as commands

    target = commands.Target(config, settings, connection)
    return commands.receive(target, address, count, as_json=as_json)


@app.command()
def peek(
    address: Address,
    *,
    batch_size: Annotated[
        int, typer.Option(min=1, help="The number at which to stop counting.")
    ] = 100,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Print the number of messages that are not locked; on PostgreSQL an estimate.

    Example: duesweep queue peek Billing
    """
    from duesweep.cli import queue_commands as commands

    with commands.open_session(commands.Target(config, settings, connection)) as session:
        queue = session.queue(address)
        waiting = queue.peek(batch_size)
        commands.print_count("messages", waiting, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE


@app.command()
def purge(
    address: Address,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the messages are lost.")] = False,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Remove all messages that are not locked.

    Example: duesweep queue purge Billing --yes
    """
    from duesweep.cli import queue_commands as commands

    commands.require_yes(address, given=yes)
    with commands.open_session(commands.Target(config, settings, connection)) as session:
        queue = session.queue(address)
        purged = queue.purge()
        commands.print_count("purged", purged, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE


@app.command()
def purge_expired(
    address: Address,
    *,
    batch_size: BatchSize = 1_000,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Remove the messages that have expired.

    Example: duesweep queue purge-expired Billing
    """
    from duesweep.cli import queue_commands as commands

    with commands.open_session(commands.Target(config, settings, connection)) as session:
        queue = session.queue(address)
        purged = queue.purge(expired_only=True, batch_size=batch_size)
        commands.print_count("purged", purged, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE
