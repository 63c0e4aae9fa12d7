"""`duesweep pause`, `resume` and `paused`: what the store is told, and what people are."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep.config.adapters.endpoint import sweep_context
from duesweep.core.errors import ConfigError, ExitCode, make_printable
from duesweep.core.policy import Pause
from duesweep.core.routing import fits_destination
from duesweep.core.times import Moment
from duesweep.operations.change import given_by
from duesweep.report.held import PAUSE_COLUMNS, pause_document, pause_row, pause_sentence
from duesweep.report.tables import print_table
from duesweep.stores.base import OperatorDriver, operators_of

# Longer than any address, and short enough for an index.
_LONGEST_PATTERN = 400


@dataclass(frozen=True, slots=True)
class NewPause:
    """What is to be paused, and why; `until` None: until somebody resumes it."""

    pattern: str
    until: Moment | None
    reason: str


def pause(
    file: Path | None, overrides: Sequence[str], wanted: NewPause, *, as_json: bool
) -> ExitCode:
    """Pause the destinations that fit a pattern, and tell what is in force."""
    _check(wanted)
    with _open(file, overrides, "pause") as session:
        now = session.horizon().server_time
        until = None if wanted.until is None else wanted.until.at(now)
        if until is not None and until <= now:
            raise ConfigError(
                f"--until is {until:%Y-%m-%d %H:%M:%S} UTC, which is over; nothing was paused",
                advice="give a time to come, as in +2h",
            )
        session.pause(wanted.pattern, until, given_by(), wanted.reason.strip())
        _print(session.source, session.pauses(), as_json=as_json, only=wanted.pattern)
    return ExitCode.DONE


def resume(file: Path | None, overrides: Sequence[str], pattern: str, *, as_json: bool) -> ExitCode:
    """End a pause."""
    with _open(file, overrides, "resume") as session:
        was_paused = session.resume(pattern)
        code = ExitCode.DONE if was_paused else ExitCode.MESSAGES_FAILED
        others = session.pauses()
        holding = [one for one in others if fits_destination(pattern, one.pattern)]
        if as_json:
            ends = {"resumed": was_paused, "exit_code": int(code)}
            print(json.dumps(_document(session.source, others) | ends))
        elif was_paused:
            goes_on = f"{pattern} goes on with the next batch"
            text = f"the pause of {pattern} has ended" if holding else goes_on
            print(make_printable(f"{session.source}: {text}."))
        if not was_paused:
            known = ", ".join(one.pattern for one in others) or "nothing"
            text = f"duesweep: {pattern} is not paused; paused is: {known}"
            print(make_printable(text), file=sys.stderr)
        for one in holding:
            text = (
                f"duesweep: the pause of {one.pattern} still holds {pattern}; end it with: "
                f"resume {one.pattern!r}"
            )
            print(make_printable(text), file=sys.stderr)
    return code


def paused(file: Path | None, overrides: Sequence[str], *, as_json: bool) -> ExitCode:
    """List the pauses in force."""
    with _open(file, overrides, "paused") as session:
        _print(session.source, session.pauses(), as_json=as_json)
    return ExitCode.DONE


def _check(wanted: NewPause) -> None:
    if not wanted.reason.strip():
        raise ConfigError("--reason is empty", advice="say why, for those who meet the pause")
    if not wanted.pattern or len(wanted.pattern) > _LONGEST_PATTERN:
        raise ConfigError(
            f"The destination has {len(wanted.pattern):,} characters",
            advice=f"give one with 1 to {_LONGEST_PATTERN}",
        )
    if wanted.pattern != wanted.pattern.strip():
        raise ConfigError(
            f"The destination {wanted.pattern!r} begins or ends with a blank",
            advice="give it without: SQL Server cannot tell the two apart",
        )


@contextmanager
def _open(file: Path | None, overrides: Sequence[str], command: str) -> Iterator[OperatorDriver]:
    store = sweep_context(configuration.load(file, overrides)).store
    operators = operators_of(store, f"the command `{command}`")
    with operators.open_driver() as session:
        session.check()
        yield session


def _document(source: str, pauses: Sequence[Pause]) -> dict[str, Any]:
    return {"source": source, "pauses": [pause_document(one) for one in pauses]}


def _print(source: str, pauses: Sequence[Pause], *, as_json: bool, only: str | None = None) -> None:
    if as_json:
        print(json.dumps(_document(source, pauses)))
        return
    for one in pauses:
        if one.pattern == only:
            print(make_printable(f"{source}: {pause_sentence(one)}"))
    if only is None and pauses:
        print_table(PAUSE_COLUMNS, [pause_row(one) for one in pauses])
    elif only is None:
        print(make_printable(f"{source}: nothing is paused."))
