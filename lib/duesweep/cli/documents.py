"""What commands print with `--json` that an error ended: always one document."""

import json
from collections.abc import Sequence
from typing import Any

from duesweep.cli.endings import command_of

_SWEEPS = {("sweep",), ("handover",)}
# Other commands say where they are declared what they print then.
_ONE_DOCUMENT = {("plan",), ("doctor",)}


def print_failure(arguments: Sequence[str], exit_code: int, error: str) -> None:
    """Print the document of a command that an error ended, if `arguments` ask for JSON."""
    if "--json" not in arguments:
        return
    failed: dict[str, Any] = {"exit_code": int(exit_code), "error": error}
    command = command_of(arguments)
    if command in _SWEEPS:
        from duesweep.operations.run import Run  # noqa: PLC0415 - other commands do without
        from duesweep.report.runs import document  # noqa: PLC0415

        failed = document(Run("", "error")) | {"source": None} | failed
    elif command not in _ONE_DOCUMENT:
        return
    print(json.dumps(failed), flush=True)
