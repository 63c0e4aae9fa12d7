"""`duesweep rabbitmq …`: the delay ladder, and endpoints, on a broker."""

from typing import Annotated

import typer

from duesweep.cli.options import AsJson, ConfigFile, Connection, Overrides

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create and verify what NServiceBus needs on RabbitMQ.",
)
delays = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The ladder in which messages are delayed."
)
endpoint = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Endpoints' queues.")

app.add_typer(delays, name="delays")
app.add_typer(endpoint, name="endpoint")


@delays.command("create")
def create_delays(
    connection: Connection = None, config: ConfigFile = None, settings: Overrides = None
) -> int:
    """Create the delay ladder, as far as it is missing."""
    from duesweep.cli import rabbitmq_commands as commands  # noqa: PLC0415 - loads pika

    return commands.create(commands.At(config, settings, connection), [])


@delays.command()
def verify(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Say what differs from the ladder that is to be there, and what would break; changes nothing.

    Exits with 3 where there is a fault or a warning, else with 0.
    """
    from duesweep.cli import rabbitmq_commands as commands  # noqa: PLC0415

    return commands.verify(commands.At(config, settings, connection), as_json=as_json)


@delays.command()
def migrate(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count; move nothing.")] = False,
    as_json: AsJson = False,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Move messages from the ladder of the transport's first versions to today's.

    Exits with 3 where some are left or went to the queue for poison, 4 where it was stopped.
    """
    from duesweep.cli import rabbitmq_migration as command  # noqa: PLC0415

    at = command.At(config, settings, connection)
    return command.count(at) if dry_run else command.run(at, as_json=as_json)


@endpoint.command("create")
def create_endpoint(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Endpoints' names.")],
    *,
    connection: Connection = None,
    config: ConfigFile = None,
    settings: Overrides = None,
) -> int:
    """Create endpoints' queues, exchanges and bindings, and the delay ladder, where missing."""
    from duesweep.cli import rabbitmq_commands as commands  # noqa: PLC0415

    return commands.create(commands.At(config, settings, connection), names)
