"""What `sweep` and `handover` print with `--json`, and what all commands do that an error ended:
always one document.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from duesweep.api.look import NextDue
from duesweep.cli.endings import command_of
from duesweep.core.account import HeldBack, SweepReport
from duesweep.report.held import held_document

_SWEEPS = {("sweep",), ("handover",)}
# Other commands say where they are declared what they print then.
_ONE_DOCUMENT = {("plan",), ("doctor",)}
_EMPTY: dict[str, Any] = {"failures": [], "breakers": [], "held_back": [], "sweep_ids": []}


@dataclass(frozen=True, slots=True)
class End:
    """How `sweep` ends. `document` is what is left to print with `--json`."""

    exit_code: int
    document: dict[str, Any] | None = None


def idle_document(
    source: str, next_due: NextDue | None = None, held: Sequence[HeldBack] = ()
) -> dict[str, Any]:
    """The document of a sweep that had nothing to do, when the next message comes due, and what is
    held back.
    """
    instant = None if next_due is None else next_due.instant.isoformat()
    return _without_work(source, "idle") | {
        "next_due": instant,
        "held_back": [held_document(one) for one in held],
    }


def unbegun_document(source: str) -> dict[str, Any]:
    """The document of a sweep that was stopped before it began."""
    return _without_work(source, "stopped")


def unsettled_document(source: str, exit_code: int, error: str) -> dict[str, Any]:
    """The document of a sweep that found nothing due, and rows that the ledger cannot take now."""
    told = {"ledger_error": error, "error": error, "exit_code": int(exit_code)}
    return _without_work(source, "idle") | told


def _without_work(source: str, outcome: str) -> dict[str, Any]:
    return _nothing() | {"source": source, "outcome": outcome, "exit_code": 0, "error": None}


def end_document(
    summary: dict[str, Any], exit_code: int, held: Sequence[HeldBack] = ()
) -> dict[str, Any]:
    """The document of a sweep that ended; `error` is why work is left for the next sweep."""
    error = summary["ledger_error"] or (
        summary["reason"] if summary["outcome"] == "incomplete" else None
    )
    return (
        summary
        | {"exit_code": int(exit_code), "error": error, "next_due": None}
        | {"held_back": [held_document(one) for one in held]}
    )


def failed_document(source: str, exit_code: int, error: str) -> dict[str, Any]:
    """The document of a sweep of a fleet that an error ended. Numbers are null: what the sweep did
    before the error is not known here.
    """
    unknown = dict.fromkeys(_nothing()) | _EMPTY
    return unknown | {
        "source": source,
        "outcome": "error",
        "exit_code": int(exit_code),
        "error": error,
    }


def print_failure(arguments: Sequence[str], exit_code: int, error: str) -> None:
    """Print the document of a command that an error ended, if `arguments` ask for JSON."""
    if "--json" not in arguments:
        return
    failed: dict[str, Any] = {"exit_code": int(exit_code), "error": error}
    command = command_of(arguments)
    if command in _SWEEPS:
        # Numbers are null: what the sweep did before the error is not known here.
        failed = dict.fromkeys(_nothing()) | _EMPTY | {"outcome": "error"} | failed
    elif command not in _ONE_DOCUMENT:
        return
    print(json.dumps(failed), flush=True)


def _nothing() -> dict[str, Any]:
    # All documents have the same names, so that one reader can read them all.
    nothing = {field.name: 0 if field.type is int else None for field in fields(SweepReport)}
    return nothing | _EMPTY | {"next_due": None}
