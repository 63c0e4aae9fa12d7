"""The commands that change waiting messages: `cancel`, `reschedule` and `restore`."""

from typing import Annotated

import typer

from duesweep.cli import filters
from duesweep.cli.options import ConfigFile, Overrides
from duesweep.core.errors import ConfigError
from duesweep.core.times import Moment, parse_moment, parse_signed_duration

KeyArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY]...", help="Keys, as `duesweep list` prints them."),
]
Reason = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Why; required for more than one message."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before it changes messages.")]
Everything = Annotated[bool, typer.Option("--all", help="All messages that wait.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what it would change; change nothing.")
]
OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
NewTime = Annotated[
    Moment | None,
    typer.Option(
        "--to", parser=parse_moment, metavar="TIME", help="The new Due, as in +2h, or in full."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Take messages out of the store.")(cancel)
    app.command(short_help="Give messages a new Due.")(reschedule)
    app.command(short_help="Store cancelled messages again.")(restore)


def cancel(  # noqa: PLR0913 - its options
    keys: KeyArguments = None,
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    destination: filters.Destination = None,
    message_type: filters.MessageType = None,
    message_id: filters.MessageIds = None,
    key: filters.Keys = None,
    saga_id: filters.SagaId = None,
    header: filters.HeaderPatterns = None,
    due_after: filters.DueAfter = None,
    due_before: filters.DueBefore = None,
    scan_limit: filters.ScanLimit = filters.DEFAULT_SCAN_LIMIT,
    everything: Everything = False,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: OneDocument = False,
) -> int:
    """Cancel messages: take them out of the store, whole into the ledger. `restore` undoes it.

    A filter shows what it means and asks. Exits with 3 if a message was not cancelled, because a
    sweep holds it or it is gone.

    Example: duesweep cancel --destination 'Reminders*' --reason 'wrong template'
    """
    from duesweep.cli import changing as command
    from duesweep.cli.commands import CommandOptions

    chosen = filters.FilterOptions(
        keys=[*(keys or ()), *(key or ())] or (),
        message_ids=message_id or (),
        destination=destination,
        message_type=message_type,
        saga_id=saga_id,
        headers=header or (),
        due_after=due_after,
        due_before=due_before,
    )
    common = CommandOptions(reason, yes=yes, is_dry_run=dry_run, as_json=as_json)
    options = command.ChangeOptions(chosen, scan_limit, everything, common)
    return command.run(config, settings or [], options)


def reschedule(  # noqa: PLR0913 - its options
    keys: KeyArguments = None,
    *,
    to: NewTime = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Move each Due by this time, as in 2h or -30m."),
    ] = None,
    config: ConfigFile = None,
    settings: Overrides = None,
    destination: filters.Destination = None,
    message_type: filters.MessageType = None,
    message_id: filters.MessageIds = None,
    key: filters.Keys = None,
    saga_id: filters.SagaId = None,
    header: filters.HeaderPatterns = None,
    due_after: filters.DueAfter = None,
    due_before: filters.DueBefore = None,
    scan_limit: filters.ScanLimit = filters.DEFAULT_SCAN_LIMIT,
    everything: Everything = False,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: OneDocument = False,
) -> int:
    """Reschedule messages: give them another Due. They keep their keys and their failures.

    A filter shows what it means and asks. Exits with 3 if a message was not rescheduled, because a
    sweep holds it or it is gone.

    Example: duesweep reschedule --destination 'Billing*' --by 2h --reason 'Billing is down'
    """
    from duesweep.change_messages import NewDue
    from duesweep.cli import changing as command
    from duesweep.cli.commands import CommandOptions

    if (to is None) == (by is None):
        raise ConfigError("`reschedule` takes one of --to and --by", advice="give one of them")
    due = NewDue(to) if by is None else NewDue(by=parse_signed_duration(by))
    chosen = filters.FilterOptions(
        keys=[*(keys or ()), *(key or ())] or (),
        message_ids=message_id or (),
        destination=destination,
        message_type=message_type,
        saga_id=saga_id,
        headers=header or (),
        due_after=due_after,
        due_before=due_before,
    )
    common = CommandOptions(reason, yes=yes, is_dry_run=dry_run, as_json=as_json)
    options = command.ChangeOptions(chosen, scan_limit, everything, common, due)
    return command.run(config, settings or [], options)


def restore(  # noqa: PLR0913 - its options
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="The keys that the messages had."),
    ] = None,
    *,
    command: Annotated[
        str | None,
        typer.Option(metavar="ID", help="All that this command cancelled; `cancel` prints its id."),
    ] = None,
    to: NewTime = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that were restored already: doubles them.")
    ] = False,
    config: ConfigFile = None,
    settings: Overrides = None,
    reason: Reason = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: OneDocument = False,
) -> int:
    """Restore cancelled messages: store them again as they were, due when they were, or at --to.

    Each is restored once. What is overdue by now goes with the next sweep. Exits with 3 if a
    message was not restored.

    Example: duesweep restore --command 4b1d6f0e-8f53-4c7b-9f0f-6a0f3f1f2c55 --to +1h
    """
    from duesweep.cli import restoring
    from duesweep.cli.commands import CommandOptions

    common = CommandOptions(reason, yes=yes, is_dry_run=dry_run, as_json=as_json)
    options = restoring.RestoreOptions(keys or (), command, to, again, common)
    return restoring.run(config, settings or [], options)
