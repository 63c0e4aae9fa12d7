"""The commands that show waiting messages: `duesweep list` and `duesweep show`."""

from typing import Annotated

import typer

from duesweep.cli import filters
from duesweep.cli.options import ConfigFile, Overrides

OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("list", short_help="List what waits.")(list_waiting)


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
    )
    options = command.ListOptions(
        chosen, limit=limit, scan_limit=scan_limit, only_count=count, as_json=as_json
    )
    return command.run(config, settings or [], options)
