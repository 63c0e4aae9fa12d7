"""Watches one endpoint or several in one process, a thread for each."""

import threading
from collections.abc import Callable, Sequence

import structlog

from duesweep.core.errors import DuesweepError, ExitCode, make_printable

_log = structlog.get_logger(__name__)

# The main thread wakes so often, as only it can handle signals.
_POLL_SECONDS = 0.2


def run_all(
    watches: Sequence[Callable[[], None]],
    look_after: Callable[[], object] = lambda: None,
    may_be_left: Callable[[int], bool] = lambda _: False,
) -> list[int]:
    """Run all until they end; their exit codes. Raises the error of a single one; the error of one
    of several is logged, and the others go on.

    This thread waits for nothing else, so that signals take effect at once. It calls `look_after`
    again and again, and does not wait for a watch that, by its number, `may_be_left`.
    """
    errors: list[Exception] = []
    threads = [
        threading.Thread(
            target=_run,
            args=(each, errors, len(watches) > 1),
            name=f"duesweep watch {number}",
            daemon=True,
        )
        for number, each in enumerate(watches)
    ]
    for thread in threads:
        thread.start()
    for number, thread in enumerate(threads):
        while thread.is_alive() and not may_be_left(number):
            look_after()
            thread.join(_POLL_SECONDS)
    if errors and len(watches) == 1:
        raise errors[0]
    return [_code(error) for error in errors] or [ExitCode.DONE]


def _run(watch: Callable[[], None], errors: list[Exception], is_one_of_several: bool) -> None:  # noqa: FBT001 - a thread's arguments
    try:
        watch()
    except Exception as error:  # noqa: BLE001 - of whatever kind: the others go on
        errors.append(error)
        if not is_one_of_several:
            return
        if isinstance(error, DuesweepError):
            _log.error("watch_ended", error=make_printable(str(error)))
        else:
            _log.exception("watch_ended")


def _code(error: Exception) -> int:
    return int(error.exit_code if isinstance(error, DuesweepError) else ExitCode.UNEXPECTED)
