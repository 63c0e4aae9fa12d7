"""Transactions that do not end well."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from duesweep.stores.base import MessageSession, TaskSession


class _RollbackError(Exception):
    """Ends a transaction."""


@contextmanager
def rolled_back(session: TaskSession | MessageSession) -> Iterator[None]:
    """A transaction, nested a savepoint, that is rolled back at its end."""
    with suppress(_RollbackError), session.transaction():
        yield
        raise _RollbackError
