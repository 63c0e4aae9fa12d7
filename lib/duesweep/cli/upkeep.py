"""The commands that look after the ledger: `audit` and `maintain`."""

from typing import Annotated

import typer

from duesweep.cli.options import ConfigFile, OneDocument, Overrides


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Compare store, journal and ledger.")(audit)
    app.command(short_help="Tidy up the journal and the ledger.")(maintain)


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
