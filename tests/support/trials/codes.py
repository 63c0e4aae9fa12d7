"""Whether a command's exit code says what really happened."""

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from support.trials import faults
from support.trials.processes import Ending

DONE, UNEXPECTED, CONFIGURATION, FAILURES, WORK_LEFT, INTERRUPTED = 0, 1, 2, 3, 4, 130
_ALLOWED = {
    faults.UNFORESEEN: {UNEXPECTED},
    faults.KILL: {-signal.SIGKILL},
    faults.INTERRUPT: {INTERRUPTED},
    faults.HALF_DELETED: {CONFIGURATION},
    faults.OTHER_LEDGER: {CONFIGURATION},
    faults.CROWD: {-signal.SIGKILL},
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What was there right after a command: messages that it should have delivered, and rows that
    are not settled. `is_alone`: nobody else held rows meanwhile.
    """

    waiting: int
    unsettled: int
    is_alone: bool = True

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left to do."""
        return not self.waiting and not self.unsettled


def untrue_ends(harm: str | None, ending: Ending, seen: Seen) -> Iterator[str]:
    """What is wrong with the end of a command; `harm` was done to it, None: nothing was."""
    code, document = ending.code, ending.document
    if code is None:
        yield "it did not end in time"
        return
    usual = {DONE, FAILURES, WORK_LEFT} if harm != faults.KILL else set()
    if code not in usual | _ALLOWED.get(str(harm), set()):
        yield f"exit code {code} after {harm}: {ending.said[-2_000:]}"
    if code < 0:
        return
    if document is None or document["exit_code"] != code:
        yield f"exit code {code}, but the document says {document and document['exit_code']}"
        return
    if code in {DONE, FAILURES}:
        yield from _untrue_success(code, document, seen)
    elif not document["error"]:
        yield f"exit code {code} without a reason"
    if code == WORK_LEFT:
        yield from _untrue_rest(harm, document, seen)


def _untrue_success(code: int, document: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    if document["outcome"] == "stopped":
        return
    # What others hold is their work.
    if not seen.is_clean and seen.is_alone and not document["skipped"]:
        left = f"{seen.waiting} messages waiting and {seen.unsettled} rows unsettled"
        yield f"exit code {code} with {left}"
    failed = (document["failed"] or 0) + (document["exhausted"] or 0)
    if bool(failed) != (code == FAILURES):
        yield f"exit code {code} with {failed} failures"


def _untrue_rest(harm: str | None, document: Mapping[str, Any], seen: Seen) -> Iterator[str]:
    if harm is None and seen.is_clean:
        yield f"exit code 4 ({document['error']}) with nothing left"
