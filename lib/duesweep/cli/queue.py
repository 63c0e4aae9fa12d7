"""`duesweep queue …`: the transport's own operations on one queue."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import AsJson, ConfigFile, Connection, Overrides
from duesweep.errors import ExitCode

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, fill, read and purge queues as the endpoint's transport does.",
)

Address = Annotated[str, typer.Argument(help="A queue, as the transport addresses it.")]
BatchSize = Annotated[int, typer.Option(help="How many messages one transaction removes.")]


@app.command()
def create(
    address: Address,
    *,
    readable_body: Annotated[
        bool, typer.Option("--readable-body", help="Add a column with the body as text.")
    ] = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create a queue table, unless it is there."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415 - not on the gate's way

    with commands.opened(commands.At(config, settings, connection)) as session:
        queue = session.queue(address)
        queue.create(readable_body=readable_body)
        print(f"{queue.destination} is there")
    return ExitCode.DONE


@app.command()
def send(  # noqa: PLR0913 - its options
    address: Address,
    *,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; as many as needed.")
    ] = None,
    body: Annotated[str | None, typer.Option(help="The body, as text in UTF-8.")] = None,
    body_file: Annotated[Path | None, typer.Option(help="The body, from a file.")] = None,
    time_to_be_received: Annotated[
        str | None, typer.Option(help="How long until it expires, as in 30s; not with --delay.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Send it later, as in 1d2h3m4s5ms, by the delayed table.")
    ] = None,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Send a message, now or later."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    message = commands.outgoing(
        header or [], commands.body_of(body, body_file), time_to_be_received, delay
    )
    at = commands.At(config, settings, connection)
    if message.delay is not None:
        commands.require_delayed_table(at)
    with commands.opened(at) as session:
        queue = session.queue(address)
        queue.send(message)
        print(f"{'stored for' if message.delay is not None else 'sent to'} {queue.destination}")
    return ExitCode.DONE


@app.command()
def receive(  # noqa: PLR0913 - its options
    address: Address,
    *,
    count: Annotated[int, typer.Option(min=1, help="How many messages at the most.")] = 1,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Take messages out of a queue and print them; one that cannot be read goes to the error queue
    of retry.error_queue, or stays.
    """
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    at = commands.At(config, settings, connection)
    return commands.receive(at, address, count, as_json=as_json)


@app.command()
def peek(  # noqa: PLR0913 - its options
    address: Address,
    *,
    batch_size: Annotated[int, typer.Option(min=1, help="Where to stop counting.")] = 100,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Say how many messages nobody holds; on PostgreSQL an estimate."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    with commands.opened(commands.At(config, settings, connection)) as session:
        queue = session.queue(address)
        waiting = queue.peek(batch_size)
        commands.print_count("messages", waiting, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE


@app.command()
def purge(  # noqa: PLR0913 - its options
    address: Address,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it: messages are lost for good.")] = False,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Remove all messages that nobody holds."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    commands.require_yes(address, given=yes)
    with commands.opened(commands.At(config, settings, connection)) as session:
        queue = session.queue(address)
        purged = queue.purge()
        commands.print_count("purged", purged, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE


@app.command()
def purge_expired(  # noqa: PLR0913 - its options
    address: Address,
    *,
    batch_size: BatchSize = 1_000,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Remove the messages that have expired."""
    from duesweep.cli import queue_commands as commands  # noqa: PLC0415

    with commands.opened(commands.At(config, settings, connection)) as session:
        queue = session.queue(address)
        purged = queue.purge(expired_only=True, batch_size=batch_size)
        commands.print_count("purged", purged, destination=queue.destination, as_json=as_json)
    return ExitCode.DONE
