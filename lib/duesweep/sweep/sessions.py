"""The sessions of slices: one with the store, and one with the queues."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import NamedTuple

from duesweep.queues.base import QueueSession
from duesweep.stores.task import TaskSession
from duesweep.sweep.job import Job


class Sessions(NamedTuple):
    """The sessions that a batch needs."""

    store: TaskSession
    queue: QueueSession


OpenedSessions = Callable[[Job], AbstractContextManager[Sessions]]


@contextmanager
def opened_sessions(job: Job) -> Iterator[Sessions]:
    """New sessions for one slice."""
    with job.context.store.open_task() as store, job.context.queue.open(store) as queue:
        yield Sessions(store, queue)


class KeptSessions:
    """Sessions for slices one after the other in one process: to open one takes longer than to
    deliver some messages. Several threads may use it.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Sessions, ExitStack]] = []
        self._times_closed = 0

    @contextmanager
    def opened(self, job: Job) -> Iterator[Sessions]:
        """Sessions that no other slice uses, or new ones. After an error they are closed."""
        times_closed = self._times_closed
        with ExitStack() as closing:
            try:
                sessions, kept = self._free.pop()
                closing.push(kept)
            except IndexError:
                sessions = closing.enter_context(opened_sessions(job))
            yield sessions
            if times_closed == self._times_closed:
                self._free.append((sessions, closing.pop_all()))

    def close(self) -> None:
        """Close all that no slice uses, and others when their slice ends."""
        self._times_closed += 1
        while self._free:
            _, kept = self._free.pop()
            kept.close()
