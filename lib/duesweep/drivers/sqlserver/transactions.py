"""Transactions and savepoints of one session."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from duesweep.drivers.sqlserver.errors import map_errors
from duesweep.drivers.sqlserver.library import odbc
from duesweep.drivers.sqlserver.watch import SilenceWatch
from duesweep.errors import (
    DestinationError,
    DuesweepError,
    MessageError,
    StoreError,
    TransactionLostError,
)

if TYPE_CHECKING:
    import pyodbc

_COMMITTABLE = 1
# A slice runs a dozen statements, and three more for each destination.
_KEPT_CURSORS = 256


@dataclass(slots=True)
class Prepared:
    """A cursor and the text that it has prepared. pyodbc prepares a text again unless it is the
    same object. `is_reusable` False: the cursor is closed after its use.
    """

    cursor: "pyodbc.Cursor"
    text: str
    is_reusable: bool = True


@dataclass(slots=True)
class RawSession:
    """A session as pyodbc has it, who watches it, and how deep its transactions are nested.
    `sends_arrays`: its ODBC driver sends arrays of parameters. `prepared` are the cursors that it
    keeps, by their text and their time-out; the one used last is the last.
    """

    raw: "pyodbc.Connection"
    watch: SilenceWatch
    sends_arrays: bool
    depth: int = 0
    prepared: dict[tuple[str, int], Prepared] = field(default_factory=dict)

    @contextmanager
    def keep_cursor(self, text: str) -> Iterator[Prepared]:
        """A cursor for a statement, kept for the next time: a new one would ask the server again
        to prepare the statement and to describe its parameters. All results have to be read, or
        the cursor is not reusable.
        """
        key = text, self.raw.timeout
        prepared = self.prepared.pop(key, None) or Prepared(self.raw.cursor(), text)
        is_kept = False
        try:
            yield prepared
            is_kept = prepared.is_reusable
        finally:
            if not is_kept:
                _close(prepared.cursor)
        if is_kept:
            self.prepared[key] = prepared
        if len(self.prepared) > _KEPT_CURSORS:
            oldest = next(iter(self.prepared))
            _close(self.prepared.pop(oldest).cursor)


class Transactions:
    """A session that commits each statement by itself, unless a transaction was begun."""

    def __init__(self, session: RawSession) -> None:
        self._session = session
        self._raw = session.raw
        self._watch = session.watch

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, or a savepoint inside one; committed at the end of the block.

        Raises `TransactionLostError` where the server has rolled back more than the savepoint.
        """
        if self._session.depth:
            with self._savepoint():
                yield
            return
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction has been begun, and neither committed nor rolled back."""
        return self._session.depth > 0

    def begin(self) -> None:
        """Begin a transaction that `commit` or `rollback` ends, unless one is under way."""
        if not self._session.depth:
            # A statement that was cut short may have left it on, and rows would go uncounted.
            self._run("SET NOCOUNT OFF; BEGIN TRANSACTION")
            self._session.depth = 1

    def commit(self) -> None:
        """Commit what was begun, if anything."""
        if self._session.depth:
            self._session.depth = 0
            self._run("COMMIT TRANSACTION")

    def rollback(self) -> None:
        """Roll back what was begun, if anything; a session that is gone has done so already."""
        self._session.depth = 0
        with suppress(StoreError):
            self._run("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION")

    def require_transaction(self) -> None:
        """Raise `TransactionLostError` where a transaction was begun but is not open any more: the
        next statements would be committed one by one.
        """
        if self.is_in_transaction and not self.is_alive_in_transaction():
            raise TransactionLostError(
                "The transaction has ended without an error",
                advice="look for triggers that roll back",
                destination_is_at_fault=True,
            )

    def is_alive_in_transaction(self) -> bool:
        """Whether a transaction is open and can still be committed."""
        with self._cursor() as cursor:
            (state,) = cursor.execute("SELECT XACT_STATE()").fetchone()
        return bool(state == _COMMITTABLE)

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        name = f"duesweep_{self._session.depth}"
        self._run(f"SAVE TRANSACTION {name}")
        self._session.depth += 1
        try:
            yield
            self.require_transaction()
        except Exception as error:
            self._roll_back_to(name, error)
            raise
        finally:
            self._session.depth -= 1

    def _roll_back_to(self, name: str, error: Exception) -> None:
        if isinstance(error, TransactionLostError):
            return
        if not self.is_alive_in_transaction():
            text = error.text if isinstance(error, DuesweepError) else str(error)
            advice = error.advice if isinstance(error, DuesweepError) else None
            is_destinations = isinstance(error, DestinationError | MessageError)
            raise TransactionLostError(
                text, destination_is_at_fault=is_destinations, advice=advice
            ) from error
        self._run(f"ROLLBACK TRANSACTION {name}")

    def _run(self, text: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(text)
            drain(cursor)

    @contextmanager
    def _cursor(self, what: str | None = None) -> "Iterator[pyodbc.Cursor]":
        """A cursor for one answer. `what` describes the statement in errors."""
        with map_errors(what), self._watch.watch_answer():
            cursor = self._raw.cursor()
            try:
                yield cursor
            finally:
                _close(cursor)

    @contextmanager
    def _prepared(self, text: str, what: str | None = None) -> Iterator[Prepared]:
        """A kept cursor for one answer. `what` describes the statement in errors."""
        with (
            map_errors(what),
            self._watch.watch_answer(),
            self._session.keep_cursor(text) as prepared,
        ):
            yield prepared


def _close(cursor: "pyodbc.Cursor") -> None:
    with suppress(odbc().Error):
        cursor.close()


def drain(cursor: "pyodbc.Cursor") -> None:
    """Read all results: an error after the first result is raised only when it is read."""
    while cursor.nextset():
        pass
