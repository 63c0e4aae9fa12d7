"""One command for each endpoint of several, one after another, and one exit code for all."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from duesweep import config as configuration
from duesweep.core.errors import DuesweepError, ExitCode, make_printable

# The worst of several last: a fault that only a person can correct is worse than one that may pass.
_FROM_BAD_TO_WORSE = (
    *(ExitCode.DONE, ExitCode.LATE, ExitCode.MESSAGES_FAILED, ExitCode.WORK_LEFT),
    *(ExitCode.CONFIGURATION, ExitCode.UNEXPECTED),
)

Run = Callable[[configuration.EndpointSettings], int]


def worst(codes: Sequence[int]) -> ExitCode:
    """The one exit code of several."""
    return max(map(ExitCode, codes), key=_FROM_BAD_TO_WORSE.index, default=ExitCode.DONE)


def for_each(
    settings: Sequence[configuration.EndpointSettings],
    run: Run,
    *,
    as_json: bool,
    heading: str = "== ",
) -> int:
    """Run for each of these endpoints. What goes wrong with one is told, and the others have their
    turn. Of several, the JSON is one document.
    """
    if len(settings) == 1:
        return run(settings[0])
    codes: list[int] = []
    documents: list[Any] = []
    for each in settings:
        if not as_json:
            print(make_printable(f"{heading}{each.label}"), flush=True)
        printed = StringIO()
        with redirect_stdout(printed if as_json else sys.stdout):
            code, error = _run(run, each)
        codes.append(code)
        if error is not None:
            print(make_printable(f"duesweep: {each.label}: {error}"), file=sys.stderr)
        if as_json:
            documents.append(_document(printed.getvalue(), each.label, code, error))
    if as_json:
        print(json.dumps({"exit_code": int(worst(codes)), "sources": documents}))
    return worst(codes)


def _run(run: Run, settings: configuration.EndpointSettings) -> tuple[int, str | None]:
    try:
        return run(settings), None
    except DuesweepError as error:
        return int(error.exit_code), str(error)


def _document(text: str, label: str, code: int, error: str | None) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return {"configuration": label, **found, "exit_code": int(code), "error": error}
