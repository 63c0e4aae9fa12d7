"""The delayed table of an endpoint on SQL Server, for tests whose server is in memory."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from duesweep.core.address import SqlServerAddresses, SqlServerTable
from duesweep.stores.dialect import Location
from duesweep.stores.due import Horizon
from duesweep.stores.kinds import SQL_SERVER_KINDS
from duesweep.stores.sqlserver import SQL_SERVER
from duesweep.stores.sweeps import SweepRun

ADDRESSES = SqlServerAddresses("Sales", "dbo", "nsb")
DELAYED = SqlServerTable("nsb", "dbo", "Sales.Delayed")
_NOW = datetime(2026, 11, 21, 10, tzinfo=UTC)
RUN = SweepRun(uuid.UUID(int=1), Horizon(_NOW, _NOW))


def location(kind: str = "sqlserver") -> Location:
    return Location(
        dialect=SQL_SERVER,
        dsn="Server=h",
        source="nsb",
        candidates=(DELAYED,),
        addresses=ADDRESSES,
        kind=SQL_SERVER_KINDS[kind],
    )


def described(columns: Mapping[str, str]) -> list[Any]:
    """The answer to `describe_table` for a table with these columns."""
    others = {"kind": "BASE TABLE", "mark": None, "policies": 0, "hook": None}
    return [SimpleNamespace(name=name, type=kind, **others) for name, kind in columns.items()]
