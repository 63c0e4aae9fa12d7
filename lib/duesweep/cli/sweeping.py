"""The commands that sweep, `sweep` and `watch`: their options."""

from pathlib import Path
from typing import Annotated

import typer

from duesweep.cli.options import ConfigFiles, EndpointName, Overrides

# Days: nobody waits longer for a message that is due.
_MOST_SECONDS = 86_400.0


def add_to(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(short_help="Move the messages that are due, once.")(sweep)
    app.command(short_help="Sweep as messages come due, until a signal.")(watch)


def sweep(
    config: ConfigFiles = None,
    endpoint: EndpointName = None,
    settings: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    max_seconds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=604_800,
            help="Stop N seconds after the start: finish the batches in hand, and leave the rest "
            "to the next sweep.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=2**31 - 1,
            help="Claim at most N messages, those that have been due for the longest, and leave "
            "the rest to the next sweep.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the report page into this file afterwards."),
    ] = None,
    gate: Annotated[bool, typer.Option("--gate", hidden=True)] = False,
) -> int:
    """Sweep once: move the messages that are due now to their queues.

    Example: duesweep sweep --max-seconds 50 --json
    """
    from duesweep.cli import sweep as command

    options = command.SweepOptions(as_json, gate, max_seconds, max_messages, report)
    return command.run(config or [], endpoint, settings or [], options)


def watch(
    config: ConfigFiles = None,
    endpoint: EndpointName = None,
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
    health_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Touch this file whenever all is well."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve the report at /, and /health, /live and /metrics, on this port; 0: a free "
            "one.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0: all of this machine's.")
    ] = "127.0.0.1",
) -> int:
    """Sweep as messages come due: wait for the next one, sweep in this process, and on Spark while
    much is due. Two watchers of one endpoint do no harm: each is the other's stand-by.

    SIGTERM and Ctrl-C end it after the batch in hand, with 0. SIGHUP reads the configuration again.

    Example: duesweep watch --port 9187
    """
    from duesweep.cli import watching

    options = watching.WatchOptions(max_wait, health_file, host, port)
    return watching.run(config or [], endpoint, settings or [], options)
