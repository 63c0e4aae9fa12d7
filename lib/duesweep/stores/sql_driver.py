"""The driver's session on a relational store."""

from collections.abc import Sequence
from typing import Self

from duesweep.core.errors import Problem
from duesweep.drivers.statements import Session
from duesweep.stores.base import OperatorDriver
from duesweep.stores.dialect import Location
from duesweep.stores.sql_binding import SqlBinding
from duesweep.stores.sql_connection import SqlConnection
from duesweep.stores.sql_due import SqlDue
from duesweep.stores.sql_journal import SqlJournal
from duesweep.stores.sql_leftovers import SqlLeftovers
from duesweep.stores.sql_people import SqlPeople
from duesweep.stores.sql_sweeps import SqlSweeps
from duesweep.stores.tables import (
    check_reading,
    check_tables,
    missing_index,
    refuse_hidden_rows,
)


class SqlDriver(OperatorDriver):
    """Its parts, on one connection, and the checks of its tables."""

    def __init__(self, session: Session, location: Location) -> None:
        at = SqlConnection(session, location)
        self.source = at.source
        self._at = at
        self._location = location
        self._dialect = location.dialect
        self._session = at.session
        self._delayed = at.delayed
        self.journal = SqlJournal(at)
        self.due = SqlDue(at, self.journal)
        self.sweeps = SqlSweeps(at)
        self.binding = SqlBinding(at)
        self.people = SqlPeople(at, self.due)
        self.leftovers = SqlLeftovers(at)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._session.__exit__(*error)

    def check(self) -> None:
        check_tables(self._session, self._location, self._delayed)

    def check_sight(self) -> None:
        refuse_hidden_rows(self._session, self._location, self._delayed)

    def check_reading(self) -> None:
        check_reading(self._session, self._location, self._delayed)

    def notices(self) -> Sequence[Problem]:
        """Messages that are never due, since they have no Due."""
        if not self._location.kind.may_lack_due:
            return ()
        timeless = self._session.row("count_timeless").timeless
        if not timeless:
            return ()
        return (
            Problem(
                f"{timeless} messages in {self._delayed.sql} have no "
                f"{self._location.kind.due}, so they never come due",
                "give them one, or remove them",
            ),
        )

    def table_notices(self) -> Sequence[Problem]:
        missing = missing_index(self._session, self._location, self._delayed)
        return () if missing is None else (missing,)
