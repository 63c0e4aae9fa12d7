"""`duesweep rabbitmq …`: the delay ladder and endpoints on a broker."""

from typing import Annotated

import typer

from duesweep.cli.options import AsJson, ConfigFile, Connection, Overrides

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create and verify the queues and exchanges of NServiceBus on RabbitMQ.",
)
delays = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The delay ladder: queues and exchanges that hold delayed messages.",
)
endpoint = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The queues of endpoints.")

app.add_typer(delays, name="delays")
app.add_typer(endpoint, name="endpoint")


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
