"""The row of a source in the table of bindings, next to its delayed table."""

from uuid import UUID, uuid5

from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.binding import JournalAge, SourceBinding
from duesweep.stores.sql_connection import SqlPart
from duesweep.stores.summary import aware

# The ledger of a source that was freed from its own.
_FREED = UUID(int=0)


class SqlBinding(SqlPart, SourceBinding):
    """A table of an older version lacks the columns of the age."""

    def ledger(self) -> UUID | None:
        delayed = self._delayed.sql
        rows = self._session.rows("read_binding", source=self.source)
        if rows and rows[0].delayed != delayed:
            raise ConfigError(
                f"The source {self.source} is {rows[0].delayed}, and cannot be {delayed} too",
                advice="set another store.name",
            )
        ledger_id = UUID(str(rows[0].ledger_id)) if rows else _FREED
        return None if ledger_id == _FREED else ledger_id

    @retry_lost_transactions
    def bind(self, ledger_id: UUID) -> None:
        self._session.execute(
            "bind",
            source=self.source,
            delayed=self._delayed.sql,
            ledger_id=ledger_id,
        )

    def age(self) -> JournalAge | None:
        if not self._at.keeps_age:
            return None
        freed = self._session.rows("read_binding", source=self.source)
        is_freed = bool(freed) and UUID(str(freed[0].ledger_id)) == _FREED
        for row in self._session.rows("read_age", source=self.source):
            return JournalAge(
                _uuid(row.journal_id) or self._own_id(),
                _uuid(row.settled_sweep),
                None if row.settled_at is None else aware(row.settled_at),
                is_freed,
                row.place,
            )
        return JournalAge(self._own_id(), None, None)

    def _own_id(self) -> UUID:
        """The id of a journal that has none yet. One that is created again in its database gets the
        same; afterwards it is a row of the journal, and goes wherever the database goes.
        """
        try:
            identity = self._session.row("server_identity").identity
        except StoreError as error:
            if error.transient:
                raise
            # Some managed servers do not tell it.
            bound = self._session.rows("read_binding", source=self.source)
            identity = bound[0].bound_at if bound else None
        return uuid5(_FREED, f"{identity}/{self.source}")

    @retry_lost_transactions
    def name_journal(self) -> None:
        if self._at.keeps_age:
            own_id = self._own_id()
            self._session.execute("name_journal", source=self.source, journal_id=own_id)

    @retry_lost_transactions
    def keep_place(self, place: str) -> None:
        if self._at.keeps_age:
            self._session.execute("keep_place", source=self.source, place=place)


def _uuid(value: object) -> UUID | None:
    return None if value is None else UUID(str(value))
