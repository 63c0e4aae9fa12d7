"""`duesweep rabbitmq …`: the delay ladder and endpoints on a broker."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import AsJson, ConfigFile, Connection, Overrides
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
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Send a message to an endpoint, now or later.

    Exits with 2 if the endpoint is missing, with 3 if the broker refuses the message.
    """
    from duesweep.cli import rabbitmq_commands as commands
    from duesweep.cli.queue_commands import read_body

    message = commands.build_message(
        header or [],
        {MESSAGE_ID: message_id, ENCLOSED_MESSAGE_TYPES: message_type},
        read_body(body, body_file),
        commands.Times(time_to_be_received, delay),
    )
    return commands.send(commands.Target(config, settings, connection), name, message)


@delays.command("create")
def create_delays(
    connection: Connection = None, config: ConfigFile = None, settings: Overrides = None
) -> int:
    """Create the missing parts of the delay ladder."""
    from duesweep.cli import rabbitmq_commands as commands

    return commands.create(commands.Target(config, settings, connection), [])


@delays.command()
def verify(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Compare the delay ladder with the expected one, and list what would fail. Changes nothing.

    Exits with 3 if there is a fault or a warning, else with 0.
    """
    from duesweep.cli import rabbitmq_commands as commands

    return commands.verify(commands.Target(config, settings, connection), as_json=as_json)


@delays.command()
def migrate(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count messages; move nothing.")
    ] = False,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Move messages from the delay ladder of the transport's first versions to the current one.

    Exits with 3 if messages are left or went to the poison queue, with 4 if it was stopped.
    """
    from duesweep.cli import rabbitmq_migration as command

    target = command.Target(config, settings, connection)
    return command.count(target) if dry_run else command.run(target, as_json=as_json)


@endpoint.command("create")
def create_endpoint(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The names of endpoints.")],
    *,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create the missing queues, exchanges and bindings of endpoints, and the delay ladder."""
    from duesweep.cli import rabbitmq_commands as commands

    return commands.create(commands.Target(config, settings, connection), names)
