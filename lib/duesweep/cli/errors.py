"""`duesweep errors …`: messages that exhausted their attempts."""

from typing import Annotated

import typer

from duesweep.cli import commands
from duesweep.cli.options import ConfigFile, Overrides
from duesweep.core.times import Moment, parse_moment

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Show, replay and discard messages that exhausted their attempts.",
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Message ids or keys.")]
Group = Annotated[
    str | None, typer.Option(metavar="GROUP", help="A group, as `errors list` names it.")
]
ErrorClass = Annotated[
    str | None,
    typer.Option("--error", metavar="PATTERN", help="The error's class; * stands for any text."),
]
Since = Annotated[
    Moment | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="Failed at this time or later, as in 2026-12-01T08:00:00Z or -12h.",
    ),
]
Until = Annotated[
    Moment | None,
    typer.Option(parser=parse_moment, metavar="TIME", help="Failed before this time."),
]
All = Annotated[bool, typer.Option("--all", help="All errors that are open.")]
Reason = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Why; required for more than one message. It is kept."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would hit; change nothing.")]
OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_errors(  # noqa: PLR0913 - its options
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    group: Group = None,
    error: ErrorClass = None,
    destination: commands.Destination = None,
    message_type: commands.MessageType = None,
    since: Since = None,
    until: Until = None,
    discarded: Annotated[
        bool, typer.Option("--discarded", help="Show those that were discarded, too.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show N groups, or errors of a group.")
    ] = 50,
    as_json: OneDocument = False,
) -> int:
    """List errors by class, destination and message type; with --group each of them, newest first.

    Example: duesweep errors list --since -12h
    """
    from duesweep.cli import errors_listing as command

    chosen = command.ErrorOptions((), group, error, destination, message_type, since, until)
    options = command.ListOptions(chosen, limit, with_discarded=discarded, as_json=as_json)
    return command.list_errors(config, settings or [], options)


@app.command()
def show(
    message: Annotated[str, typer.Argument(metavar="ID", help="A message id or a key.")],
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    as_json: OneDocument = False,
) -> int:
    """Show an error: what was done with it, headers, body and stack.

    Example: duesweep errors show 5b0f3a52-6a1c-4b7e-9d0a-3c1f5f0e8a11
    """
    from duesweep.cli import errors_listing as command

    return command.show(config, settings or [], message, as_json=as_json)


@app.command()
def replay(  # noqa: PLR0913 - its options
    ids: Ids = None,
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    group: Group = None,
    error: ErrorClass = None,
    destination: commands.Destination = None,
    message_type: commands.MessageType = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    to: Annotated[
        str | None, typer.Option(metavar="DESTINATION", help="Deliver there instead.")
    ] = None,
    due: Annotated[
        Moment | None,
        typer.Option(
            parser=parse_moment,
            metavar="TIME",
            help="Put them back into the store, due at this time, as in +10m.",
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also what was replayed or discarded before.")
    ] = False,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: OneDocument = False,
) -> int:
    """Deliver errors again, each once: to their destinations, or through the store with --due.

    Exits with 3 if something was not replayed.

    Example: duesweep errors replay --group 1f0c9a2b --reason 'Billing is up again'
    """
    from duesweep.cli import errors_steering as command
    from duesweep.cli.errors_listing import ErrorOptions
    from duesweep.cli.errors_telling import CommandOptions
    from duesweep.operations.replay import Target

    chosen = ErrorOptions(tuple(ids or ()), group, error, destination, message_type, since, until)
    common = CommandOptions(reason, yes=yes, is_dry_run=dry_run, as_json=as_json)
    return command.replay(
        command.Call(config, settings or [], chosen, common, everything),
        Target(to, due),
        again=again,
    )


@app.command()
def discard(  # noqa: PLR0913 - its options
    ids: Ids = None,
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    group: Group = None,
    error: ErrorClass = None,
    destination: commands.Destination = None,
    message_type: commands.MessageType = None,
    since: Since = None,
    until: Until = None,
    everything: All = False,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: OneDocument = False,
) -> int:
    """Mark errors as done without a replay. The ledger keeps them, and why.

    Example: duesweep errors discard --group 1f0c9a2b --reason 'orders of the load test'
    """
    from duesweep.cli import errors_steering as command
    from duesweep.cli.errors_listing import ErrorOptions
    from duesweep.cli.errors_telling import CommandOptions

    chosen = ErrorOptions(tuple(ids or ()), group, error, destination, message_type, since, until)
    common = CommandOptions(reason, yes=yes, is_dry_run=dry_run, as_json=as_json)
    return command.discard(command.Call(config, settings or [], chosen, common, everything))
