"""The command `watch`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import ConfigFiles, Overrides

# Days: nobody waits longer for a message that is due.
_MOST_SECONDS = 86_400.0


def add_to(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(short_help="Sweep as messages come due, until a signal.")(watch)


def watch(
    config: ConfigFiles = None,
    settings: Overrides = None,
    *,
    max_wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0.1,
            max=_MOST_SECONDS,
            help="Look at the store after so many seconds at the latest: so late may a message be "
            "that an endpoint stores with a short delay.",
        ),
    ] = 1.0,
    spark_idle: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=_MOST_SECONDS,
            help="Let Spark go when for so many seconds little was due.",
        ),
    ] = 60.0,
    health_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Touch this file whenever all is well."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65_535, help="Serve /health and /metrics on this port; 0: a free one."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0: all of this machine's.")
    ] = "127.0.0.1",
    until_idle: Annotated[float | None, typer.Option(hidden=True)] = None,
    figures: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> int:
    """Sweep as messages come due: wait for the next one, sweep in this process, and on Spark while
    much is due. Two watchers of one endpoint do no harm: each is the other's stand-by.

    SIGTERM and Ctrl-C end it after the batch in hand, with 0.

    Example: duesweep watch --port 9187
    """
    from duesweep.cli import helping, watching

    if until_idle is not None:
        return helping.run(config or [], settings or [], max_wait, until_idle, figures)
    options = watching.WatchOptions(max_wait, spark_idle, health_file, host, port)
    return watching.run(config or [], settings or [], options)
