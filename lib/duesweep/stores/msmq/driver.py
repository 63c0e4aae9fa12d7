"""The driver's session on the MSMQ transport's delayed message store."""

from collections.abc import Sequence

from duesweep.errors import Problem
from duesweep.stores.relational.destinations import DestinationColumn
from duesweep.stores.sqlserver.driver import SqlServerDriverSession


class MsmqDriverSession(SqlServerDriverSession, DestinationColumn):
    """As on any SQL Server; only that the destination is a column, and columns may be NULL."""

    def notices(self) -> Sequence[Problem]:
        """Messages without a Time, which are never due."""
        return self._timeless()
