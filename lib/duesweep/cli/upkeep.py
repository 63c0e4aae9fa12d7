"""The commands that look after an endpoint: `report`, `audit` and `maintain`."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import ConfigFile, ConfigFiles, OneDocument, Overrides


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Write a page about what was swept and what waits.")(report)
    app.command(short_help="Compare store, journal and ledger.")(audit)
    app.command(short_help="Tidy up the journal and the ledger.")(maintain)


def report(
    config: ConfigFiles = None,
    settings: Overrides = None,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The page; - is standard output.")
    ] = Path("duesweep-report.html"),
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=400, help="Look back so many days.")
    ] = 7,
) -> int:
    """Write one page of HTML: the last sweeps, how late messages were, what comes due, what fails,
    the errors that wait for a hand, pauses, and the doctor's findings. It needs no network.

    Exits with 4 if neither the store nor the ledger of an endpoint could be read.

    Example: duesweep report --out /var/www/duesweep.html
    """
    from duesweep.cli import report as command

    return command.run(config or [], settings or [], out, days)


def audit(
    config: ConfigFile = None, settings: Overrides = None, *, as_json: OneDocument = False
) -> int:
    """Compare store, journal and ledger: each message that left has one tombstone, and the sums of
    the sweeps are those of the tombstones. Changes and locks nothing; sweeps may run meanwhile.

    Exits with 3 if something does not agree.

    Example: duesweep audit --json
    """
    from duesweep.cli import audit as command

    return command.run(config, settings or [], as_json=as_json)


def maintain(
    config: ConfigFile = None,
    settings: Overrides = None,
    *,
    forget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help="Delete what is kept of a source whose delayed table is gone; may be repeated.",
        ),
    ] = None,
    as_json: OneDocument = False,
) -> int:
    """Settle what dead sweeps left, remove retry counters of messages that are gone, compact the
    ledger's files, and delete files and rows that are too old (ledger.vacuum_days and
    ledger.keep_days). Sweeps may run meanwhile.

    Example: duesweep maintain --set ledger.keep_days=400
    """
    from duesweep.cli import maintain as command

    return command.run(config, settings or [], forget or [], as_json=as_json)
