"""The errors of delta-rs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from duesweep.errors import LedgerError

# What the storage says when it is full, away or silent: it may pass by itself.
_TRANSIENT = (
    "No space left on device",
    "Disk quota exceeded",
    "Input/output error",
    "Read-only file system",
    "timed out",
    "error sending request",
    "Connection",
    "503",
)

_FAILURES = (DeltaError, OSError, pa.ArrowException)
_OTHER_WRITER = (
    'set ledger.writer = "spark": the tables have features that delta-rs does not support'
)
_CHECK = "check ledger.root, the right to it and its credentials"


@contextmanager
def map_errors(failure: str, consequence: str = "") -> Iterator[None]:
    """Turn delta-rs's errors into `LedgerError`s that begin with `failure`."""
    try:
        yield
    except BaseException as error:
        # A panic of Rust's is no `Exception`, and its class cannot be imported.
        if not isinstance(error, _FAILURES) and type(error).__name__ != "PanicException":
            raise
        text = str(error)
        is_beyond = isinstance(error, DeltaProtocolError) or "Unsupported" in text
        raise LedgerError(
            f"{failure}: {_line(error)}{consequence}",
            advice=_OTHER_WRITER if is_beyond else _CHECK,
            transient=any(each in text for each in _TRANSIENT),
        ) from error


@contextmanager
def ignore_conflicts() -> Iterator[None]:
    """Go on where another process has committed the same at the same time."""
    try:
        yield
    except CommitFailedError:
        return


def _line(error: BaseException) -> str:
    """What the storage says, or else the first line."""
    text = str(error)
    found = next((each for each in _TRANSIENT[:4] if each in text), None)
    return found or (text.splitlines() or [type(error).__name__])[0].rstrip(": ")
