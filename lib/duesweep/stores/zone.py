"""The time zone that a delayed table's writers live in.

NServiceBus stores and compares Due through the session's time zone, and its sessions take the
server's default, the database's or their role's. So that zone decides which instant a stored Due
is; the sweeper's own zone has no part in it.
"""

from collections.abc import Sequence
from typing import Any

from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError
from duesweep.core.policy import Limits
from duesweep.drivers.postgresql.session import connect_as_server, server_time_zone
from duesweep.drivers.statements import Session
from duesweep.stores.base import Horizon
from duesweep.stores.dialect import Location

_OVERRIDE = "set store.writer_time_zone to the time zone of the sessions that write to it"


def zone_of(session: Session, location: Location) -> str:
    """The zone whose clock Due shows: the table's own, else the writers', as it is configured or as
    it is found.
    """
    zone = location.kind.time_zone or location.writer_time_zone
    if zone is not None:
        return zone
    return writer_time_zone(session, location.dsn, location.delayed)


def horizon_in(zone: str, statements: Session) -> Horizon:
    """The horizon now by NServiceBus's predicate, evaluated by the server in the writers' zone."""
    with statements.transaction():
        statements.row("set_zone", zone=zone)
        row = statements.row("horizon")
    return Horizon(row.horizon, row.server_time, zone=zone)


def writer_time_zone(session: Session, dsn: str, delayed: TableName) -> str:
    """The writers' time zone; `ConfigError` where roles disagree or the server's is hidden."""
    rows = session.rows("writer_zones", schema=delayed.schema, table=delayed.table)
    if not rows:
        raise ConfigError(
            f"There is no delayed table {delayed}",
            advice="check store.endpoint, store.schema and store.delayed_table",
        )
    writers = _writers(rows)
    zones = {row.zone for row in writers}
    if len(zones) > 1:
        found = ", ".join(f"{row.role}: {row.zone or 'the default'}" for row in writers)
        raise ConfigError(
            f"The roles that may write to {delayed} have different time zones ({found}), so the "
            "instants of its Due are ambiguous",
            advice=_OVERRIDE,
        )
    zone = zones.pop()
    return zone if zone is not None else _default_zone(dsn, delayed, session.limits)


def _writers(rows: Sequence[Any]) -> Sequence[Any]:
    """Who writes: the owner and roles that may insert.

    Not superusers, who may everything, and not a sweeper that is not the owner; but the owner,
    of whatever name, if it is the only one.
    """
    writers = [row for row in rows if not row.is_superuser and (row.is_owner or not row.is_sweeper)]
    return writers or [row for row in rows if row.is_owner]


def _default_zone(dsn: str, delayed: TableName, limits: Limits) -> str:
    with connect_as_server(dsn, limits) as session:
        row = session.row("session_zone")
    if row.source not in {"client", "user", "database user"}:
        return str(row.zone)
    # This role has a zone of its own, which hides the server's from its sessions.
    zone = server_time_zone(dsn, limits)
    if zone is None:
        raise ConfigError(
            "The sweeper's role has a time zone of its own, which hides the server's, so the "
            f"instants of Due in {delayed} are unknown",
            advice=_OVERRIDE,
        )
    return zone
