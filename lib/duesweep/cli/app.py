"""`duesweep <command>`: options in, exit code out.

Each command imports its modules when it runs: Spark and all drivers take a second to load, and
most commands need few of them.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module  # noqa: TID251 - of this table only
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from duesweep.cli import runs
from duesweep.cli.commands import NOTHING, About
from duesweep.cli.output import output_failure
from duesweep.cli.signals import TerminatedError, raise_on_signals
from duesweep.core import logs, submit
from duesweep.core.errors import (
    NO_DESCRIPTORS,
    DuesweepError,
    ExitCode,
    UnprintedError,
    lacks_descriptors,
    make_printable,
    raise_interruption,
)
from duesweep.core.result import exit_code_of

# The shells' convention: 128 plus the signal's number.
INTERRUPTED = 130
_LOG_LEVEL = "--log-level"

# Groups of commands of another package, by name: nothing else here knows it.
_TOOLS = {
    "queue": ("duesweep_transport.commands", "Create, fill, read and purge queues."),
    "rabbitmq": ("duesweep_transport.rabbitmq_commands", "Create and check queues on RabbitMQ."),
    "subscriptions": ("duesweep_transport.commands", "Read and change subscriptions."),
}

# A sweep may start each minute, so it loads the options of no other command.
_SWEEPING = {each.name for each in runs.app.registered_commands}


def _print_version(value: bool) -> None:
    if not value:
        return
    import platform
    from importlib import metadata

    import duesweep

    try:
        spark = f"PySpark {metadata.version('pyspark')}"
    except metadata.PackageNotFoundError:
        # spark-submit has a PySpark of its own, which is not an installed package.
        spark = "PySpark not installed"
    print(f"duesweep {duesweep.__version__} (Python {platform.python_version()}, {spark})")
    raise typer.Exit


def _duesweep(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of duesweep, Python and PySpark.",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", help="Print nothing if the exit code is 0; `watch`: log warnings."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log each step: the level debug.")
    ] = False,
    log_level: Annotated[
        logs.Level | None,
        typer.Option(help="Log events of this level and worse ones; default: info."),
    ] = None,
) -> None:
    """Sweep due delayed messages of NServiceBus endpoints to their queues."""
    usual = logs.Level.WARNING if quiet else logs.Level.INFO
    logs.use(log_level or (logs.Level.DEBUG if verbose else usual))


def all_commands() -> typer.Typer:
    """The application."""
    from duesweep.cli import demo, exhausted, messages, upkeep

    app = _application(runs.app, demo.app, messages.app, upkeep.app)
    shown = "Show, replay and discard exhausted messages."
    app.add_typer(exhausted.app, name="errors", short_help=shown)
    for name, (module, shown) in _TOOLS.items():
        app.add_typer(getattr(import_module(module), name), name=name, short_help=shown)
    return app


def _application(*parts: typer.Typer) -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        epilog="These options, and options of Spark's spark-submit, such as --master, --remote, "
        "--conf, --jars and --driver-memory, may stand anywhere on the command line.",
    )
    app.callback()(_duesweep)
    for part in parts:
        app.registered_commands += part.registered_commands
    return app


def _commands(given: Sequence[str]) -> Callable[..., object]:
    """The commands; for a command that sweeps, only the commands that sweep."""
    return _made(sweeps_only=bool(given) and given[0] in _SWEEPING)


@cache
def _made(*, sweeps_only: bool) -> Callable[..., object]:
    """To make them takes 17 ms, which a process that runs many spends once."""
    return typer.main.get_command(_application(runs.app) if sweeps_only else all_commands())


def _run(general: list[str], arguments: list[str]) -> object:
    words = [*general, *arguments]
    try:
        return _commands(arguments)(args=words, prog_name="duesweep", standalone_mode=False)
    except TyperException as error:
        if not error.format_message().startswith("Usage:"):
            raise
        # No command was given: this is the help, and not a sentence.
        print(error.format_message(), file=sys.stderr)
        return ExitCode.CONFIGURATION
    except DuesweepError as error:
        raise_interruption(error)
        raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code. Each problem is one line on stderr."""
    if isinstance(sys.stdout, TextIOWrapper):
        # A locale may lack the characters of a name. Python does the same for stderr.
        sys.stdout.reconfigure(errors="backslashreplace")
    code, failure = _run_and_print(arguments), output_failure()
    # A reader that has enough is no failure.
    if failure is None or isinstance(failure, BrokenPipeError):
        return code
    _print_lines([f"standard output cannot be written: {failure.strerror}"])
    return code or ExitCode.WORK_LEFT


def _run_and_print(arguments: Sequence[str] | None) -> int:
    general, given = _general(sys.argv[1:] if arguments is None else arguments)
    # The output of a watcher is its log.
    if "--quiet" not in general or given[:1] == ["watch"]:
        return _main(general, given)
    code: int | None = None
    out, err, stdin = StringIO(), StringIO(), sys.stdin
    try:
        with redirect_stdout(out), redirect_stderr(err), Path(os.devnull).open() as nobody:
            # A question would not be seen.
            sys.stdin = nobody if stdin.isatty() else stdin
            code = _main(general, given)
    finally:
        sys.stdin = stdin
        if code != ExitCode.DONE:
            with suppress(UnprintedError):
                print(out.getvalue(), end="", flush=True)
            print(err.getvalue(), end="", file=sys.stderr, flush=True)
    return code


def _general(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of all commands, which may stand anywhere before `--`, and the rest."""
    end = words.index("--") if "--" in words else len(words)
    # The doctor has one of this name.
    flags = {"--quiet"} | ({"--verbose"} if "doctor" not in words else set())
    general: list[str] = []
    rest: list[str] = []
    left = iter(words[:end])
    for word in left:
        if word in flags or word.startswith(f"{_LOG_LEVEL}="):
            general.append(word)
        elif word == _LOG_LEVEL:
            general += [word, *islice(left, 1)]
        else:
            rest.append(word)
    return general, [*rest, *words[end:]]


def _main(general: list[str], given: list[str]) -> int:
    try:
        with raise_on_signals():
            submit.command_line, given = submit.take_options(given)
            result = _run(general, given)
        if result == INTERRUPTED:
            # Typer turns Ctrl-C into an exit code without a message.
            raise KeyboardInterrupt
    except TyperException as error:
        code, sentence = int(ExitCode.CONFIGURATION), f"{_usage_fault(given, error)} (see --help)"
    except DuesweepError as error:
        lines = [problem.sentences for problem in error.problems]
        _print_failure(given, int(exit_code_of(error)), "\n".join(lines))
        _print_lines(lines)
        return int(exit_code_of(error))
    except TerminatedError:
        code = int(ExitCode.WORK_LEFT)
        sentence = f"terminated; {ending(given)}"
    except KeyboardInterrupt:
        code, sentence = INTERRUPTED, f"interrupted; {ending(given)}"
    except UnprintedError as error:
        if error.code is not None:
            return error.code
        has_enough = isinstance(error.__cause__, BrokenPipeError) and ending(given) == NOTHING
        return ExitCode.DONE if has_enough else ExitCode.WORK_LEFT
    except Exception as error:
        if not lacks_descriptors(error):
            # An unexpected error: the stack is needed to correct it.
            _print_failure(given, ExitCode.UNEXPECTED, f"{type(error).__name__}: {error}")
            raise
        code, sentence = int(ExitCode.WORK_LEFT), NO_DESCRIPTORS.sentences
    else:
        return result if isinstance(result, int) else ExitCode.DONE
    _print_failure(given, code, sentence)
    _print_lines([sentence])
    return code


def ending(given: Sequence[str]) -> str:
    """The command's sentence if it ends before it is done."""
    about = About.of(_commands(given), given)
    return "it may be done in part" if about is None else about.ending


def _print_failure(given: Sequence[str], exit_code: int, error: str) -> None:
    """Print the document of a command that an error ended, if JSON was asked for."""
    about = About.of(_commands(given), given)
    if about is not None and about.failed is not None and "--json" in given:
        failed = about.failed() | {"exit_code": int(exit_code), "error": error}
        # Standard error has the sentence.
        with suppress(UnprintedError):
            print(json.dumps(failed), flush=True)


def _print_lines(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        print(make_printable(f"duesweep: {sentence}"), file=sys.stderr)


def _usage_fault(given: Sequence[str], error: TyperException) -> str:
    """The fault in the options. The wish for a dry run of a sweep has its own command."""
    fault = error.format_message()
    if given[:1] == ["sweep"] and "--dry-run" in given:
        return f"{fault.rstrip('.')}. Use `duesweep plan`, which shows the next sweep's work"
    return fault
