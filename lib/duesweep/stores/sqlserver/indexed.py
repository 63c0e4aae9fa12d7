"""One task's session on a table on SQL Server whose key is indexed."""

from collections.abc import Sequence

from duesweep.message import Message
from duesweep.stores.sqlserver.account import listed
from duesweep.stores.sqlserver.task import SqlServerTaskSession


class IndexedTaskSession(SqlServerTaskSession):
    """Claims by Due, as the others do, and removes by key."""

    def _remove(self, messages: Sequence[Message]) -> int:
        self.connection.require_transaction()
        return self._statements.execute("remove_by_id", **listed(m.key for m in messages))
