"""The errors of delta-rs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

from duesweep.errors import LedgerError

# What the storage says: first what may pass by itself.
_PASSING = (
    *("No space left on device", "Disk quota exceeded", "Input/output error"),
    *("Read-only file system", "Stale file handle", "Transport endpoint is not connected"),
    *("Connection refused", "Connection reset", "operation timed out", "503 Service"),
)
_LASTING = ("Permission denied", "403 Forbidden", "401 Unauthorized")
_FAILURES = (DeltaError, OSError, pa.ArrowException)
_OTHER_WRITER = (
    'set ledger.writer = "spark": the tables have features that delta-rs does not support'
)
_CHECK = (
    "check ledger.root, the right to it and, in the environment, its credentials; with "
    'ledger.writer = "spark" they are Spark\'s'
)


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
            f"{failure}: {_sentence(text) or type(error).__name__}{consequence}",
            advice=_OTHER_WRITER if is_beyond else _CHECK,
            transient=any(each in text for each in _PASSING),
        ) from error


@contextmanager
def ignore_conflicts() -> Iterator[None]:
    """Go on where another process has committed the same at the same time."""
    try:
        yield
    except CommitFailedError:
        return


def _sentence(text: str) -> str:
    """What the storage says, or else the first line."""
    said = next((each for each in (*_PASSING, *_LASTING) if each in text), None)
    return said or text.partition("\n")[0].rstrip(": ")
