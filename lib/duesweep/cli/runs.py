"""The commands that sweep: `sweep`, `watch` and `handover`."""

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from duesweep.cli.commands import (
    ConfigFiles,
    Configured,
    EndpointName,
    Overrides,
    Printed,
    command,
)
from duesweep.cli.signals import stop_on_signals
from duesweep.core.errors import ConfigError
from duesweep.report.tables import print_blocks

# A day: due messages should not wait longer.
_MOST_SECONDS = 86_400.0


app = typer.Typer()


def _failure() -> dict[str, Any]:
    from duesweep.report.views.runs import failure

    return failure()


@command(
    app,
    "sweep",
    ending="no message is lost, and the next sweep continues",
    short="Deliver the due messages once.",
    document=_failure,
)
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
            help="Stop after N seconds: finish the current batches, and leave the other messages "
            "to the next sweep.",
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=2**31 - 1,
            help="Claim at most N messages, earliest due time first, and leave the others to the "
            "next sweep.",
        ),
    ] = None,
) -> int:
    """Deliver the due messages to their queues, once.

    Example: duesweep sweep --max-seconds 50 --json
    """
    from duesweep import config as configuration
    from duesweep.cli import sweep as command

    return command.run(
        configuration.settings_of(config or [], endpoint),
        settings or [],
        as_json=as_json,
        max_seconds=max_seconds,
        max_messages=max_messages,
    )


@command(
    app,
    "watch",
    ending="no message is lost, and the next watcher or sweep continues",
    short="Deliver messages as they fall due, until a signal.",
    document=None,
)
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
            help="Look at the store at least this often, in seconds: a message with a short delay "
            "can be this late.",
        ),
    ] = 0.1,
    health_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Touch this file while everything works."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            max=65_535,
            help="Serve the report, /health, /live and /metrics on this port; 0: a free port.",
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="The address to listen on; 0.0.0.0: all addresses."),
    ] = "127.0.0.1",
) -> int:
    """Deliver messages as they fall due: wait for the next one, and sweep in this process. You can
    run two watchers of one endpoint: each is the stand-by of the other.

    SIGTERM, SIGHUP and Ctrl-C end it after the current batch, with 0, or for several endpoints with
    the code of one that it could not watch.

    Example: duesweep watch --port 10187
    """
    from duesweep.cli import watch as command

    options = command.WatchOptions(max_wait, health_file, host, port)
    return command.run(config or [], endpoint, settings or [], options)


@command(
    app,
    "handover",
    ending="no message is lost; run `duesweep handover` again to continue",
    short="Empty the store for good.",
    document=_failure,
)
def handover(
    *,
    configured: Configured,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the messages by destination; move nothing.")
    ] = False,
    cutoff: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Leave messages that are due before this time in the store: 2026-12-01T08:00:00Z; "
            "default: none.",
        ),
    ] = None,
    abort: Annotated[
        bool,
        typer.Option("--abort", help="Stop a handover of another process before its next batch."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> Printed:
    """Empty the store: dispatch due messages, and defer all others in RabbitMQ's delay ladder.

    Run it again to continue after a stop. Exits with 4 if messages are left in the store.

    Example: duesweep handover --dry-run
    """
    if abort and (dry_run or cutoff):
        raise ConfigError(
            "--abort cannot be used with --dry-run or --cutoff", advice="remove the others"
        )
    since = parse_cutoff(cutoff) if cutoff else None
    from duesweep.operations.duesweep import Duesweep, Stop
    from duesweep.report.progress import sweeping_line
    from duesweep.report.views import runs as views

    duesweep = Duesweep(configured.loaded())
    if abort:
        aborted = duesweep.abort_handover()
        return Printed(aborted, views.aborted_blocks(aborted))
    print_blocks(views.notices(duesweep.check_handover()), as_json=as_json)
    if dry_run:
        found = duesweep.preview_handover(cutoff=since)
        return Printed(found, views.preview_blocks(found))
    with stop_on_signals(stop := Stop()):
        shown = partial(sweeping_line, duesweep)
        done = duesweep.handover(cutoff=since, stop=stop, shown=shown)
    return Printed(views.handover_document(done), views.handover_blocks(done))


def parse_cutoff(text: str) -> datetime:
    """The instant of a cut-off's text. Raises `ConfigError` for a text without time or zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"--cutoff {text!r} is not a time", advice="write one as in 2026-12-01T08:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise ConfigError(
            f"--cutoff {text!r} has no time zone", advice="write one as in 2026-12-01T08:00:00Z"
        )
    return moment
