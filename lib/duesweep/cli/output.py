"""Standard output that cannot be written: a full disk, or a reader that has enough."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from duesweep.core.errors import UnprintedError


class _Output(TextIOWrapper):
    """Standard output that remembers its first `failure`."""

    failure: OSError | None = None

    def write(self, text: str, /) -> int:
        with self._remembering():
            return super().write(text)

    def flush(self) -> None:
        with self._remembering():
            super().flush()

    @contextmanager
    def _remembering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error
            raise UnprintedError from error


def open_streams() -> None:
    """Let each of the three streams be there, and standard output know its failure. Python has none
    for a closed one, and another file would get its number.
    """
    for name, mode in {"stdin": "r", "stdout": "w", "stderr": "w"}.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - until the process ends
    out = sys.stdout
    if isinstance(out, TextIOWrapper) and not is_closed():
        sys.stdout = _Output(
            out.buffer,
            out.encoding,
            line_buffering=out.line_buffering,
            write_through=out.write_through,
        )


def is_closed() -> bool:
    """Whether standard output was closed when this process started."""
    return getattr(sys.stdout, "name", None) == os.devnull


@contextmanager
def ended_with(code: int) -> Iterator[None]:
    """The block prints the result of a command that has ended with this exit code."""
    try:
        yield
    except UnprintedError as error:
        error.code = code
        raise


def output_failure() -> OSError | None:
    """Why standard output was not written in full; None: it was. If it was not, Python does not try
    to write the rest when it ends.
    """
    with suppress(UnprintedError):
        sys.stdout.flush()
    failure: OSError | None = getattr(sys.stdout, "failure", None)
    if failure is not None:
        with Path(os.devnull).open("wb") as null_device:
            os.dup2(null_device.fileno(), sys.stdout.fileno())
    return failure
