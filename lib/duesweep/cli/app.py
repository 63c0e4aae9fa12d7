"""`duesweep <command>`: options in, exit code out."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from duesweep.cli import documents, queue, rabbitmq, subscriptions
from duesweep.cli.options import ConfigFile, Overrides
from duesweep.cli.signals import TerminatedError, terminable
from duesweep.errors import DuesweepError, ExitCode

# As shells say it: 128 and the signal's number.
INTERRUPTED = 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(queue.app, name="queue")
app.add_typer(rabbitmq.app, name="rabbitmq")
app.add_typer(subscriptions.app, name="subscriptions")


def _print_version(value: bool) -> None:
    if value:
        from duesweep.cli import version  # noqa: PLC0415 - a command imports only its own

        print(version.line())
        raise typer.Exit


@app.callback()
def duesweep(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of duesweep, Python and PySpark.",
        ),
    ] = False,
) -> None:
    """Sweep due delayed messages of NServiceBus endpoints to their queues."""


@app.command()
def sweep(
    config: ConfigFile = None,
    settings: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON.")] = False,
    gate: Annotated[bool, typer.Option("--gate", hidden=True)] = False,
) -> int:
    """Sweep what is due now, once."""
    from duesweep.cli import sweep as command  # noqa: PLC0415 - a command imports only its own

    return command.run(config, settings or [], as_json=as_json, gate=gate)


@app.command()
def handover(
    config: ConfigFile = None,
    settings: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would go where; move nothing.")
    ] = False,
    cutoff: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Leave what is due before, as in 2026-12-01T08:00:00Z; default: leave nothing.",
        ),
    ] = None,
    abort: Annotated[
        bool, typer.Option("--abort", help="Stop one that runs elsewhere, before its next batch.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The summary as JSON.")] = False,
) -> int:
    """Drain the store: dispatch what is due, hand the rest to RabbitMQ's delayed delivery.

    Run it again to go on after a stop. Exits with 4 where messages are left in the store.
    """
    from duesweep.cli import handover as command  # noqa: PLC0415

    options = command.HandoverOptions(cutoff=cutoff, dry_run=dry_run, abort=abort, as_json=as_json)
    return command.run(config, settings or [], options)


@app.command()
def setup(
    config: ConfigFile = None,
    settings: Overrides = None,
    print_sql: Annotated[
        bool, typer.Option("--print-sql", help="Print the statements; connect to nothing.")
    ] = False,
    rebind: Annotated[
        bool, typer.Option("--rebind", help="Bind the journal anew, to the ledger of ledger.root.")
    ] = False,
) -> int:
    """Create what NServiceBus would create for the endpoint, plus duesweep's journal."""
    from duesweep.cli import setup as command  # noqa: PLC0415

    return command.run(config, settings or [], print_sql=print_sql, rebind=rebind)


@app.command()
def doctor(
    config: ConfigFile = None,
    settings: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Leave Spark, its executors and the ledger out.")
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="CHECK", help="Accept what a check finds; as many as needed."),
    ] = None,
) -> int:
    """Look for what is wrong with services and settings, and say what to do; changes nothing.

    Exits with 3 where there is a fault or a warning, else with 0.
    """
    from duesweep.cli import doctor as command  # noqa: PLC0415

    options = command.DoctorOptions(as_json=as_json, with_spark=not no_spark, ignored=ignore or [])
    return command.run(config, settings or [], options)


@app.command("config")
def show_config(config: ConfigFile = None, settings: Overrides = None) -> int:
    """Print the effective configuration, secrets masked."""
    from duesweep.cli import setup as command  # noqa: PLC0415

    return command.show(config, settings or [])


@app.command()
def demo(
    folder: Annotated[Path, typer.Option(help="Where the demonstration keeps its data.")] = Path(
        "build/demo"
    ),
    messages: Annotated[int, typer.Option(min=100, help="How many messages to load.")] = 20_000,
) -> int:
    """Sweep 20,000 messages of an embedded PostgreSQL, twice, and look at the ledger."""
    from duesweep.demo import run as command  # noqa: PLC0415

    return command.run(folder, messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. One sentence on stderr says what went wrong."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with terminable():
            result = app(args=given, prog_name="duesweep", standalone_mode=False)
        if result == INTERRUPTED:
            # Typer makes an exit code of Ctrl-C, and says nothing.
            raise KeyboardInterrupt
    except TyperException as error:
        code, sentence = int(ExitCode.CONFIGURATION), f"{error.format_message()} (see --help)"
    except DuesweepError as error:
        code, sentence = int(error.exit_code), str(error)
    except TerminatedError:
        code = int(ExitCode.WORK_LEFT)
        sentence = "terminated; the next sweep settles what was done"
    except KeyboardInterrupt:
        code, sentence = INTERRUPTED, "interrupted; the next sweep settles what was done"
    except Exception as error:
        # Nobody foresaw it, so whoever mends it needs the stack.
        documents.print_failure(given, ExitCode.UNEXPECTED, f"{type(error).__name__}: {error}")
        raise
    else:
        return result if isinstance(result, int) else ExitCode.DONE
    documents.print_failure(given, code, sentence)
    print(f"duesweep: {sentence}", file=sys.stderr)
    return code
