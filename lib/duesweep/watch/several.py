"""Watches several endpoints in one process, a thread for each."""

import threading
from collections.abc import Callable, Sequence

import structlog

from duesweep.errors import DuesweepError, ExitCode
from duesweep.texts import make_printable

_log = structlog.get_logger(__name__)

# The main thread wakes so often, as only it can handle signals.
_POLL_SECONDS = 0.2


def run_all(watches: Sequence[Callable[[], None]]) -> list[int]:
    """Run all until they end; their exit codes. A single one runs in this thread, and raises its
    error; the error of one of several is logged, and the others go on.
    """
    if len(watches) == 1:
        watches[0]()
        return [ExitCode.DONE]
    codes: list[int] = []
    threads = [
        threading.Thread(
            target=_run, args=(each, codes), name=f"duesweep watch {number}", daemon=True
        )
        for number, each in enumerate(watches)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
    return codes


def _run(watch: Callable[[], None], codes: list[int]) -> None:
    try:
        watch()
    except DuesweepError as error:
        _log.error("watch_ended", error=make_printable(str(error)))
        codes.append(int(error.exit_code))
    except Exception:  # noqa: BLE001 - of whatever kind: the others go on
        _log.exception("watch_ended")
        codes.append(int(ExitCode.UNEXPECTED))
