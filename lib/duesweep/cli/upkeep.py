"""The commands that look after the ledger: `audit`."""

import typer

from duesweep.cli.options import ConfigFile, OneDocument, Overrides


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Compare store, journal and ledger.")(audit)


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
