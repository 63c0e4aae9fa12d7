"""What one source waits for at this moment, for its log, its health and its metrics."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

# Shorter ones are told to nobody.
LONG_SECONDS = 2.0
# What is waited for with no message in hand.
STORE, QUEUES, STORAGE = "store", "queues", "ledger storage"
# What rows of the journal wait for.
LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class Wait:
    """`what` is waited for: a few words, the same each time. `why` is a sentence for people.
    `since` is by `time.monotonic()`.
    """

    what: str
    why: str
    since: float

    @property
    def seconds(self) -> float:
        """For how long so far."""
        return time.monotonic() - self.since


class Waits:
    """The waits of one source that are under way, those that block nothing too: rows that wait for
    a lock of the ledger while messages go on. Any thread may ask.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, Wait] = {}

    def begin(self, what: str, why: str) -> None:
        """Note a wait. One that is under way goes on, and has the reason that was given last."""
        before = self._under_way.get(what)
        since = time.monotonic() if before is None else before.since
        self._under_way[what] = Wait(what, why, since)

    def end(self, what: str) -> None:
        """Note that a wait is over, if there was one."""
        self._under_way.pop(what, None)

    @contextmanager
    def waiting(self, what: str, why: str) -> Iterator[None]:
        """Note that the block waits."""
        self.begin(what, why)
        try:
            yield
        finally:
            self.end(what)

    def long(self) -> Sequence[Wait]:
        """Those that have taken longer than two seconds."""
        return [each for each in list(self._under_way.values()) if each.seconds > LONG_SECONDS]
