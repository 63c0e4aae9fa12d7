"""The driver's session on the MSMQ transport's delayed message store."""

from collections.abc import Sequence

from duesweep.stores.sqlserver.driver import SqlServerDriverSession


class MsmqDriverSession(SqlServerDriverSession):
    """As on any SQL Server; only that this table's columns may be NULL."""

    def notices(self) -> Sequence[str]:
        """Messages without a Time, which are never due."""
        timeless = self._statements.row("count_timeless").timeless
        if not timeless:
            return ()
        return (
            f"{timeless} messages in {self._delayed_table.sql} have no Time, so that they never "
            "come due: give them one, or remove them",
        )
