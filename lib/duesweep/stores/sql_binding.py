"""The row of a source in the table of bindings, next to its delayed table."""

from functools import cached_property
from typing import Any
from uuid import UUID, uuid5

from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.binding import Bound, JournalAge, SourceBinding
from duesweep.stores.sql_connection import SqlPart
from duesweep.stores.summary import aware

# The ledger of a source that was freed from its own.
_FREED = UUID(int=0)


class SqlBinding(SqlPart, SourceBinding):
    """The row of the source."""

    def read(self) -> Bound:
        row = self._row()
        if row is None:
            return Bound(None, JournalAge(self._own_id(None), None, None))
        delayed = self._delayed.sql
        if row.delayed != delayed:
            raise ConfigError(
                f"The source {self.source} is {row.delayed}, and cannot be {delayed} too",
                advice="set another store.name",
            )
        ledger_id = UUID(str(row.ledger_id))
        # Notes of a version that noted no place are too old to compare with the ledger.
        is_noted = row.place is not None and row.settled_at is not None
        age = JournalAge(
            _uuid(row.journal_id) or self._own_id(row.bound_at),
            _uuid(row.settled_sweep) if is_noted else None,
            aware(row.settled_at) if is_noted else None,
            ledger_id == _FREED,
            row.place,
        )
        return Bound(None if ledger_id == _FREED else ledger_id, age)

    @retry_lost_transactions
    def bind(self, ledger_id: UUID) -> None:
        self._session.execute(
            "bind",
            source=self.source,
            delayed=self._delayed.sql,
            ledger_id=ledger_id,
        )

    @retry_lost_transactions
    def name_journal(self) -> None:
        row = self._row()
        own_id = self._own_id(row and row.bound_at)
        self._session.execute("name_journal", source=self.source, journal_id=own_id)

    @retry_lost_transactions
    def keep_place(self, place: str) -> None:
        self._session.execute("keep_place", source=self.source, place=place)

    def _row(self) -> Any:
        return next(iter(self._session.rows("read_binding", source=self.source)), None)

    def _own_id(self, bound_at: object) -> UUID:
        """The id of a journal that has none yet. One that is created again in its database gets the
        same; afterwards it is a row of the journal, and goes wherever the database goes.
        """
        identity = self._server_identity
        # Some managed servers do not tell it.
        return uuid5(_FREED, f"{bound_at if identity is None else identity}/{self.source}")

    @cached_property
    def _server_identity(self) -> object:
        """The identity of the server that this session is connected to, if it tells it."""
        try:
            return self._session.row("server_identity").identity
        except StoreError as error:
            if error.transient:
                raise
            return None


def _uuid(value: object) -> UUID | None:
    return None if value is None else UUID(str(value))
