"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from duesweep.address import PostgreSqlAddresses, TableName, quoted
from duesweep.drivers.postgresql import DRIVER_LIMITS, Connection, connect
from duesweep.errors import ConfigError, MessageError
from duesweep.sql import statement
from duesweep.stores.postgresql.check import check_session
from duesweep.stores.postgresql.place import journal_tables
from duesweep.stores.postgresql.store import PostgreSqlStore

# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63


_Creation = tuple[Sequence[TableName], str]


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What is to be set up. `queue_dsn` None: the queues are in the store's own database."""

    store: PostgreSqlStore
    error_queue: str | None
    queue_dsn: str | None = field(default=None, repr=False)


def setup_script(plan: SetupPlan) -> str:
    """All statements, for whoever is to run them; comments say where, if there is a choice."""
    if plan.queue_dsn is None:
        return _text([*_store_creations(plan.store), *_queue_creations(plan)])
    return (
        "-- In the database that store.dsn names:\n"
        f"{_text(_store_creations(plan.store))}\n"
        "-- In the database that queues.default.dsn names:\n"
        f"{_text(_queue_creations(plan))}"
    )


def set_up(plan: SetupPlan, *, rebind: bool) -> Sequence[TableName]:
    """Create what is missing; the tables created. `rebind` frees the source from its ledger.

    Raises `ConfigError`, before it creates anything in a database, where this role may not.
    """
    store, queues = plan.store, list(_queue_creations(plan))
    with connect(store.dsn, DRIVER_LIMITS) as connection:
        check_session(connection, "store.dsn")
        own = [*_store_creations(store), *(queues if plan.queue_dsn is None else [])]
        created = _create_missing(connection, own)
        if rebind:
            connection.execute("unbind", store.tables, source=store.source)
    if plan.queue_dsn is not None:
        with connect(plan.queue_dsn, DRIVER_LIMITS) as connection:
            check_session(connection, "queues.default.dsn")
            created += _create_missing(connection, queues)
    return created


def _create_missing(connection: Connection, creations: Sequence[_Creation]) -> list[TableName]:
    lacking = [
        ([table for table in tables if not _exists(connection, table)], text)
        for tables, text in creations
    ]
    created = [table for tables, _ in lacking for table in tables]
    for schema in sorted({table.schema for table in created}):
        _check_schema(connection, schema)
    for tables, text in lacking:
        # Not run where all is there: IF NOT EXISTS too takes the right to create.
        if tables:
            connection.script(text)
    return created


def _exists(connection: Connection, table: TableName) -> bool:
    names = {"schema": table.schema, "table": table.table}
    return bool(connection.rows("describe_table", {}, **names, rights=[]))


def _check_schema(connection: Connection, schema: str) -> None:
    rows = connection.rows("describe_schema", {}, schema=schema)
    if not rows:
        raise ConfigError(
            f"There is no schema {quoted(schema)} to create tables in; create it, or correct "
            "store.schema or retry.error_queue"
        )
    if not rows[0].may_create:
        raise ConfigError(
            f"This role may not create tables in schema {quoted(schema)}; grant it USAGE and "
            "CREATE there, or have an administrator run what `setup --print-sql` prints"
        )


def _store_creations(store: PostgreSqlStore) -> Iterator[_Creation]:
    delayed = store.delayed
    yield [delayed], _script("create_delayed", delayed=delayed, index=_index_name(delayed))
    journal = journal_tables(delayed.schema)
    yield list(journal.values()), _script("create_journal", **journal)


def _queue_creations(plan: SetupPlan) -> Iterator[_Creation]:
    addresses = plan.store.addresses
    queues = [addresses.own_queue]
    if plan.error_queue is not None:
        queues.append(_error_queue(addresses, plan.error_queue))
    for queue in queues:
        yield [queue], _script("create_queue", queue=queue)


def _error_queue(addresses: PostgreSqlAddresses, address: str) -> TableName:
    try:
        return addresses.parse(address)
    except MessageError as error:
        raise ConfigError(f"retry.error_queue: {error}; correct the setting") from error


def _text(creations: Iterable[_Creation]) -> str:
    return "\n".join(text for _, text in creations)


def _script(name: str, **names: object) -> str:
    return statement("postgresql", name).format(**names)


def _index_name(delayed: TableName) -> str:
    """`<table>_Due` as the transport calls it, shortened where PostgreSQL would cut the end off."""
    suffix = "_Due"
    name = delayed.table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore")
    return quoted(name + suffix)
