"""What `sweep` and `handover` print with `--json`: one document, whatever happens."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from duesweep.stores.values import SweepReport

_COMMANDS = {"sweep", "handover"}


def idle(source: str) -> dict[str, Any]:
    """Of a sweep that found nothing to do."""
    return _nothing() | {"source": source, "outcome": "idle", "exit_code": 0, "error": None}


def ended(summary: dict[str, Any], exit_code: int) -> dict[str, Any]:
    """Of a sweep that came to its end; `error` is why something is left to the next."""
    error = summary["ledger_error"] or (
        summary["reason"] if summary["outcome"] == "incomplete" else None
    )
    return summary | {"exit_code": int(exit_code), "error": error}


def print_failure(arguments: Sequence[str], exit_code: int, error: str) -> None:
    """Print that of a command that was ended by an error, if it was to print one."""
    if not _COMMANDS.isdisjoint(arguments[:1]) and "--json" in arguments:
        failed = {"outcome": "error", "exit_code": int(exit_code), "error": error}
        print(json.dumps(_nothing() | failed), flush=True)


def _nothing() -> dict[str, Any]:
    # The names of every other run's document, so that one reader can read them all.
    nothing = {field.name: 0 if field.type is int else None for field in fields(SweepReport)}
    return nothing | {"failures": []}
