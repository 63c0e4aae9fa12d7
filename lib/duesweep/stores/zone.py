"""The time zone that a delayed table's writers live in.

NServiceBus stores and compares Due through the session's time zone, and its sessions take the
server's default, the database's or their role's. So that zone decides which instant a stored Due
is; the sweeper's own zone has no part in it.
"""

from collections.abc import Collection, Sequence
from typing import Any, cast

from duesweep.core.address import TableName
from duesweep.core.errors import ConfigError, StoreError
from duesweep.drivers.postgresql.session import PostgreSqlSession, server_time_zone
from duesweep.drivers.statements import Session
from duesweep.stores.dialect import Location
from duesweep.stores.due import Horizon

# The zone of each of our sessions, by its two names.
_OF_SESSIONS = {"UTC", "Etc/UTC"}
_OVERRIDE = "set store.writer_time_zone to the time zone of the sessions that write to it"


def zone_of(session: Session, location: Location) -> str:
    """The zone whose clock Due shows: the table's own, else the writers', as it is configured or as
    it is found.
    """
    zone = location.kind.time_zone or location.writer_time_zone
    if zone is not None:
        return zone
    return writer_time_zone(session, location.dsn, location.delayed)


def horizon_in(session: Session, zone: str) -> Horizon:
    """The horizon now by NServiceBus's predicate, evaluated by the server in the writers' zone.
    Raises `ConfigError` for a zone that it does not know.
    """
    if zone in _OF_SESSIONS:
        row = session.row("horizon")
    else:
        with session.transaction():
            _set(session, zone)
            row = session.row("horizon")
    return Horizon(row.horizon, row.server_time, zone=zone)


def _set(session: Session, zone: str) -> None:
    try:
        session.row("set_zone", zone=zone)
    except StoreError as error:
        if error.transient:
            raise
        raise ConfigError(
            f"store.writer_time_zone is {zone!r}, which PostgreSQL does not know",
            advice="give a name out of pg_timezone_names",
        ) from error


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
    if None in zones:
        default = _default_zone(session, dsn, delayed)
        zones = {zone or default for zone in zones}
    if not agree(session, zones):
        found = ", ".join(f"{row.role}: {row.zone or default}" for row in writers)
        raise ConfigError(
            f"The roles that may write to {delayed} have different time zones ({found}), so the "
            "instants of its Due are ambiguous",
            advice=_OVERRIDE,
        )
    zone: str = min(zones)
    return zone


def agree(session: Session, zones: Collection[str]) -> bool:
    """Whether clocks of these time zones show the same in the coming years, whatever their names
    are.
    """
    if len(set(zones)) == 1:
        return True
    with session.transaction():
        # As the server writes them: a setting may also be a number of hours.
        known = {session.row("set_zone", zone=zone).zone for zone in zones}
        # The setting would outlive a savepoint.
        session.row("set_zone", zone="UTC")
        return len(known) == 1 or bool(session.row("zones_agree", zones=[*known]).agree)


def _writers(rows: Sequence[Any]) -> Sequence[Any]:
    """Who writes: the owner and roles that may insert.

    Not superusers, who may everything, and not a sweeper that is not the owner; but the owner,
    of whatever name, if it is the only one.
    """
    writers = [row for row in rows if not row.is_superuser and (row.is_owner or not row.is_sweeper)]
    return writers or [row for row in rows if row.is_owner]


def _default_zone(session: Session, dsn: str, delayed: TableName) -> str:
    zone = server_time_zone(cast(PostgreSqlSession, session), dsn)
    if zone is None:
        raise ConfigError(
            "The sweeper's role or its dsn has a time zone of its own, which hides the server's, "
            f"so the instants of Due in {delayed} are unknown",
            advice=_OVERRIDE,
        )
    return zone
