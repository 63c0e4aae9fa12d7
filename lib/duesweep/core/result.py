"""The results of operations, for programs and notebooks, and the exit codes of commands."""

import sys
from typing import Any

from duesweep.core.account import SweepReport, SweepSummary
from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    ExitCode,
    LedgerError,
    MessageError,
    RefusedStatementError,
    ServiceError,
    SparkError,
    SweepClosedError,
)


def exit_code_of(ended: object) -> ExitCode:  # noqa: PLR0911 - one for each way to end
    """The exit code of a process that ends with this error, sweep, or result of another command.

    A fault that only a person can correct is the configuration's; one that may pass leaves work
    for the next sweep. Such a result says its own; without one it is done.
    """
    match ended:
        case MessageError():
            return ExitCode.MESSAGES_FAILED
        case ConfigError() | RefusedStatementError():
            return ExitCode.CONFIGURATION
        case DestinationError() | SweepClosedError() | ServiceError(transient=True):
            return ExitCode.WORK_LEFT
        case LedgerError() | SparkError():
            return ExitCode.CONFIGURATION
        case BaseException():
            return ExitCode.UNEXPECTED
        case SweepReport(is_lasting=True):
            return ExitCode.CONFIGURATION
        case SweepReport(ledger_error=str()) | SweepSummary(outcome="incomplete" | "abandoned"):
            return ExitCode.WORK_LEFT
        # A sweep that was stopped may also have failures.
        case SweepSummary(failed=failed, exhausted=exhausted) if failed or exhausted:
            return ExitCode.MESSAGES_FAILED
        case SweepReport(is_late=True):
            return ExitCode.LATE
        case {"exit_code": code}:
            return ExitCode(code)
    return ExitCode(getattr(ended, "exit_code", ExitCode.DONE))


def _entry() -> Any:
    """The package's own entry, which knows where documents and texts are made."""
    return sys.modules["duesweep"]


class Result:
    """A value that an operation returns."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON document of the command, as `json.dumps` takes it."""
        document: dict[str, Any] = _entry().document(self)
        return document

    def _repr_html_(self) -> str:
        """The text of the command, for a notebook."""
        html: str = _entry().html(self)
        return html


class Listed(Result):
    """A result that lists rows of one kind."""

    __slots__ = ()

    def to_arrow(self) -> Any:
        """Its rows as a `pyarrow.Table`."""
        return _entry().arrow(self)
