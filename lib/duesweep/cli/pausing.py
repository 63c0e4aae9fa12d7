"""The commands that pause destinations: `pause`, `resume` and `paused`."""

from typing import Annotated

import typer

from duesweep.cli.options import ConfigFile, Overrides
from duesweep.core.times import Moment, parse_moment

Pattern = Annotated[
    str,
    typer.Argument(
        metavar="DESTINATION",
        help="A destination as messages name it, with * for any text; the endpoint's own queue has "
        "the endpoint's name; * alone is the whole endpoint.",
    ),
]
Until = Annotated[
    Moment | None,
    typer.Option(
        parser=parse_moment,
        metavar="TIME",
        help="When it ends by itself, as in +2h, or in full; default: when somebody resumes it.",
    ),
]
OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Let nothing go to a destination.")(pause)
    app.command(short_help="End a pause.")(resume)
    app.command(short_help="List the pauses.")(paused)


def pause(
    destination: Pattern,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those who meet the pause.")],
    config: ConfigFile = None,
    settings: Overrides = None,
    until: Until = None,
    as_json: OneDocument = False,
) -> int:
    """Let no sweep deliver to a destination. Its messages stay, and no attempt is counted.

    Sweeps that run obey from their next batch on. Batches under way end within about 5 seconds.

    Example: duesweep pause 'Billing*' --until +2h --reason 'the bank is down'
    """
    from duesweep.cli import pauses as command

    wanted = command.NewPause(destination, until, reason)
    return command.pause(config, settings or [], wanted, as_json=as_json)


def resume(
    destination: Pattern,
    *,
    config: ConfigFile = None,
    settings: Overrides = None,
    as_json: OneDocument = False,
) -> int:
    """End the pause of just this destination or pattern. Exits with 3 if there is none.

    Example: duesweep resume 'Billing*'
    """
    from duesweep.cli import pauses as command

    return command.resume(config, settings or [], destination, as_json=as_json)


def paused(
    config: ConfigFile = None, settings: Overrides = None, *, as_json: OneDocument = False
) -> int:
    """List the pauses in force.

    Example: duesweep paused
    """
    from duesweep.cli import pauses as command

    return command.paused(config, settings or [], as_json=as_json)
