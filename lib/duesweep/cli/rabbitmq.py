"""`duesweep rabbitmq …`: the delay ladder and endpoints on a broker."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import ConfigFile, Connection, OneDocument, Overrides
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create and verify the queues and exchanges of NServiceBus on RabbitMQ; send messages.",
)
delays = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The delay ladder: queues and exchanges that hold delayed messages.",
)
endpoint = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The queues of endpoints.")

app.add_typer(delays, name="delays")
app.add_typer(endpoint, name="endpoint")


@app.command()
def send(  # noqa: PLR0913 - its options
    name: Annotated[str, typer.Argument(help="The name of an endpoint.")],
    *,
    message_type: Annotated[
        str | None, typer.Option(help=f"The message's type; the header {ENCLOSED_MESSAGE_TYPES}.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option(help=f"The message's id ({MESSAGE_ID}); default: a new one.")
    ] = None,
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
        typer.Option(
            help="Send it after this time, in seconds or as in 1d2h3m4s, through the delay ladder."
        ),
    ] = None,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Send a message to an endpoint, now or later.

    Exits with 2 if the endpoint is missing, with 3 if the broker refuses the message.

    Example: duesweep rabbitmq send Billing --body '{}' --delay 1h
    """
    from duesweep.cli import rabbitmq_commands as commands
    from duesweep.cli.queue_commands import read_body

    message = commands.build_message(
        header or [],
        {MESSAGE_ID: message_id, ENCLOSED_MESSAGE_TYPES: message_type},
        read_body(body, body_file),
        commands.Times(time_to_be_received, delay),
    )
    target = commands.Target(config, settings, connection)
    return commands.send(target, name, message, as_json=as_json)


@delays.command("create")
def create_delays(
    *,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create the missing parts of the delay ladder.

    Example: duesweep rabbitmq delays create
    """
    from duesweep.cli import rabbitmq_commands as commands

    target = commands.Target(config, settings, connection)
    return commands.create(target, [], as_json=as_json)


@delays.command()
def verify(
    *,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Compare the delay ladder with the expected one, and list what would fail. Changes nothing.

    Exits with 3 if there is a fault or a warning, else with 0.

    Example: duesweep rabbitmq delays verify
    """
    from duesweep.cli import rabbitmq_commands as commands

    return commands.verify(commands.Target(config, settings, connection), as_json=as_json)


@delays.command()
def migrate(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count messages; move nothing.")
    ] = False,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Move messages from the delay ladder of the transport's first versions to the current one.

    Exits with 3 if messages are left or went to the poison queue, with 4 if it was stopped.

    Example: duesweep rabbitmq delays migrate --dry-run
    """
    from duesweep.cli import rabbitmq_migration as command

    target = command.Target(config, settings, connection)
    run = command.count if dry_run else command.run
    return run(target, as_json=as_json)


@endpoint.command("create")
def create_endpoint(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The names of endpoints.")],
    *,
    as_json: OneDocument = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create the missing queues, exchanges and bindings of endpoints, and the delay ladder.

    Example: duesweep rabbitmq endpoint create Billing Shipping
    """
    from duesweep.cli import rabbitmq_commands as commands

    target = commands.Target(config, settings, connection)
    return commands.create(target, names, as_json=as_json)
