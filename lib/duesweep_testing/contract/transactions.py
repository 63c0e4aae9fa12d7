"""A transaction that is rolled back."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from duesweep.stores.base import MessageSession, TaskSession


class _RollbackError(Exception):
    """Rolls a transaction back."""


@contextmanager
def roll_back(session: TaskSession | MessageSession) -> Iterator[None]:
    """A transaction (nested: a savepoint) that is rolled back at the end of the block."""
    with suppress(_RollbackError), session.transaction():
        yield
        raise _RollbackError
