"""The commands that show waiting messages: `duesweep list` and `duesweep show`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli import filters
from duesweep.cli.options import ConfigFile, ConfigFiles, Overrides
from duesweep.report.bodies import BodyForm

OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("list", short_help="List what waits.")(list_waiting)
    app.command(short_help="Say what a sweep would do now.")(plan)
    app.command("show", short_help="Show a message, whole, with its history.")(show)


def list_waiting(  # noqa: PLR0913 - its options
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
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Show the N messages that are due first.")
    ] = 20,
    scan_limit: filters.ScanLimit = filters.DEFAULT_SCAN_LIMIT,
    count: Annotated[
        bool, typer.Option("--count", help="Show no messages, only how many there are.")
    ] = False,
    failing: Annotated[
        bool,
        typer.Option(
            "--failing", help="Only messages that have failed: why, and when they are tried again."
        ),
    ] = False,
    as_json: OneDocument = False,
) -> int:
    """List the messages that wait, and count how soon they come due. Changes and locks nothing.

    Example: duesweep list --destination 'Billing*' --due-before +1h
    """
    from duesweep.cli import listing as command

    chosen = filters.FilterOptions(
        keys=key or (),
        message_ids=message_id or (),
        destination=destination,
        message_type=message_type,
        saga_id=saga_id,
        headers=header or (),
        due_after=due_after,
        due_before=due_before,
        is_failing=failing,
    )
    options = command.ListOptions(
        chosen, limit=limit, scan_limit=scan_limit, only_count=count, as_json=as_json
    )
    return command.run(config, settings or [], options)


def show(
    key: Annotated[
        str | None, typer.Argument(metavar="KEY", help="Its key, as `duesweep list` prints it.")
    ] = None,
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    message_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Its message id, in place of its key.")
    ] = None,
    form: Annotated[
        BodyForm | None,
        typer.Option("--as", help="How to show the body; default: as fits its content."),
    ] = None,
    body_to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the body, byte for byte, to a new file."),
    ] = None,
    as_json: OneDocument = False,
) -> int:
    """Show a waiting message with headers, body, failures, and its history in the ledger. Changes
    and locks nothing.

    Exits with 3 if neither the store nor the ledger knows the message.

    Example: duesweep show 0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f --as hex
    """
    from duesweep.cli import show as command

    options = command.ShowOptions(key, message_id, form=form, body_to=body_to, as_json=as_json)
    return command.run(config, settings or [], options)


def plan(
    *,
    config: ConfigFiles = None,
    settings: Overrides = None,
    sql: Annotated[bool, typer.Option("--sql", help="Show the query of the plan, too.")] = False,
    as_json: OneDocument = False,
) -> int:
    """Say what a sweep would do now: how much is due, for which destinations, what is held back,
    which engine would work, and for how long. Changes and locks nothing.

    Example: duesweep plan
    """
    from duesweep.cli import outlook as command
    from duesweep.cli.each import for_each

    options = command.PlanOptions(with_sql=sql, as_json=as_json)
    run = partial(command.run, overrides=settings or [], options=options)
    return for_each(config or [], run, as_json=as_json)
