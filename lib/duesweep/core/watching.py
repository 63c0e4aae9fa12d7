"""When a watcher looks at its store again. Decisions only: the caller has the clock."""

from datetime import datetime

LEAST_WAIT_SECONDS = 0.1
# Messages that come due within this time leave together. Each sweep is a row of the ledger and a
# third of a second of work, and without a rest there would be 250,000 a day.
REST_SECONDS = 0.3
# After errors: about as long as a database takes to restart.
MOST_WAIT_AFTER_ERRORS_SECONDS = 30.0
# After errors of the ledger, which dispatch does not need.
MOST_WAIT_FOR_LEDGER_SECONDS = 1.0
# While others hold messages that are due: the server takes these from a frozen process after 2 s.
MOST_WAIT_FOR_LOCKED_SECONDS = 1.0


def wait_for_next(next_due: datetime | None, now: datetime | None, most_seconds: float) -> float:
    """How many seconds to wait for the message that is due next; both times are the server's.

    Never more than `most_seconds`: an endpoint may store a message that is due earlier.
    """
    if next_due is None or now is None:
        return most_seconds
    return _within((next_due - now).total_seconds(), most_seconds)


def wait_after(times: int, most_seconds: float = MOST_WAIT_AFTER_ERRORS_SECONDS) -> float:
    """How many seconds to wait after so many ticks in a row that failed, or moved nothing although
    something was due: a rest for 0, and twice as long each time, up to `most_seconds`.
    """
    doublings = min(max(times, 0), 20)
    return _within(REST_SECONDS * 2**doublings, most_seconds)


def _within(seconds: float, most_seconds: float) -> float:
    return max(LEAST_WAIT_SECONDS, min(seconds, most_seconds))
