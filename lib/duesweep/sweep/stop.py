"""Stops a sweep early: current batches are finished, and the rest is left to the next sweep.

The store's database knows when a sweep is to stop, because each batch asks there whether the sweep
is still open. So it does not matter which engine runs the slices, or where.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from uuid import UUID

from duesweep.core.world import Clock, Waits
from duesweep.stores.base import Store
from duesweep.stores.sweeps import SweepRun, Sweeps

# Why a look waits.
STORE_IS_SILENT = "The store has not reported its due messages yet"
_POLL_SECONDS = 0.2


class _Asked:
    """Whether a stop was asked for; shared by a stop and its parts."""

    is_asked = False


class Stop:
    """Says when one sweep is to stop: as soon as `ask` is called, and at `at` at the latest,
    in seconds since 1970-01-01 UTC; None: only when asked.

    `most`: it may claim this many messages, the longest due ones first; None: all. `lasting`
    are seconds from `begin` on, which is after the plan; None: it has no end of its own.
    `waits` notes each wait that may take long, and `unreported` are sources and ids of this
    process's sweeps that have no report yet; parts share both.
    """

    def __init__(
        self,
        at: float | None = None,
        most: int | None = None,
        clock: Clock | None = None,
        lasting: float | None = None,
    ) -> None:
        self.waits = Waits()
        self.unreported: set[tuple[str, UUID]] = set()
        self._most = most
        self._at = at
        self._lasting = lasting
        self._asked = _Asked()
        self._clock = clock or Clock()

    def ask(self) -> None:
        """Stop as soon as possible. A handler of signals may call it."""
        self._asked.is_asked = True

    def part(self, lasting: float | None = None, most: int | None = None) -> "Stop":
        """For one of several sweeps: it stops when this one does, and `lasting` seconds after its
        plan at the latest. It may claim `most` messages, by default as many as this one.
        """
        most = self._most if most is None else most
        stop = Stop(self._at, most, self._clock, lasting)
        stop._asked, stop.waits = self._asked, self.waits
        stop.unreported = self.unreported
        return stop

    def unreported_of(self, source: str) -> Sequence[UUID]:
        """The sweeps of a source that have no report yet."""
        # A copy: threads of other endpoints change the set.
        return [sweep_id for each, sweep_id in tuple(self.unreported) if each == source]

    def after(self, claimed: int) -> "Stop":
        """The same, for a sweep after one that claimed this many messages."""
        return self if self._most is None else self.part(most=max(0, self._most - claimed))

    def begin(self) -> float | None:
        """Begin to dispatch. Returns the seconds until it is wanted; None: it has no time. A plan
        may take longer than a part lasts, and each next part would plan in vain too.
        """
        if self._lasting is not None:
            end = self._clock.now().timestamp() + self._lasting
            self._at, self._lasting = end if self._at is None else min(self._at, end), None
        return self._seconds_left()

    @property
    def is_asked(self) -> bool:
        """Whether a stop was asked for, whatever the time is."""
        return self._asked.is_asked

    @property
    def is_wanted(self) -> bool:
        return self._seconds_left() == 0

    @property
    def may_claim(self) -> bool:
        """Whether the sweep may claim any message."""
        return self._most != 0

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or until it is wanted."""
        end = self._clock.seconds() + seconds
        # In short naps: the handler of a signal does no more than `ask`.
        while not self.is_wanted and (left := end - self._clock.seconds()) > 0:
            self._clock.sleep(min(left, _POLL_SECONDS))

    def shares(self, planned: Sequence[int]) -> tuple[int, ...] | None:
        """How many messages each slice of a plan may claim, the first slices first; None: all."""
        if self._most is None or sum(planned) <= self._most:
            return None
        before = accumulate(planned, initial=0)
        return tuple(
            max(0, min(count, self._most - earlier))
            for count, earlier in zip(planned, before, strict=False)
        )

    def most_of(self, found: int) -> int:
        """How many of the `found` messages the sweep may claim."""
        return found if self._most is None else min(found, self._most)

    @contextmanager
    def passed_on(self, store: Store, sweeps: Sweeps, run: SweepRun) -> Iterator[None]:
        """Within the block, tell `store` when the sweep is to stop."""
        seconds = self._seconds_left()
        if seconds is not None:
            sweeps.stop(run.sweep_id, seconds)
        is_over = threading.Event()
        # The session of the block may be waiting for an answer at that time.
        thread = threading.Thread(
            target=self._tell, args=(store, run, is_over), name="duesweep stop", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            # A thread whose store does not answer ends later by itself.
            thread.join(_POLL_SECONDS)

    def _tell(self, store: Store, run: SweepRun, is_over: threading.Event) -> None:
        while not is_over.wait(_POLL_SECONDS):
            if not self._asked.is_asked:
                continue
            # After an error, again in the next round; a custom store may raise anything.
            with suppress(Exception), store.open_driver() as session:
                session.sweeps.stop(run.sweep_id, 0)
                return

    def _seconds_left(self) -> float | None:
        if self._asked.is_asked:
            return 0
        return None if self._at is None else max(0, self._at - self._clock.now().timestamp())
