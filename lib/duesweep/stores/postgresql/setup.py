"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Iterator, Sequence

from duesweep.address import PostgreSqlAddresses, TableName, quoted
from duesweep.drivers.postgresql import DRIVER_LIMITS, connect
from duesweep.sql import statement
from duesweep.stores.postgresql.store import PostgreSqlStore, journal_tables

# Identifiers are cut after this many bytes, which would give an index its table's name.
_NAME_BYTES = 63


def setup_script(store: PostgreSqlStore, error_queue: str | None) -> str:
    """All statements, for whoever is to run them."""
    return "\n".join(text for _, text in _creations(store, error_queue))


def set_up(store: PostgreSqlStore, error_queue: str | None, *, rebind: bool) -> Sequence[TableName]:
    """Create what is missing; the tables created. `rebind` frees the source from its ledger."""
    created = []
    with connect(store.dsn, DRIVER_LIMITS) as connection:
        for tables, text in _creations(store, error_queue):
            missing = [
                table
                for table in tables
                if not connection.rows(
                    "describe_table", {}, schema=table.schema, table=table.table, rights=[]
                )
            ]
            # Not run where all is there: IF NOT EXISTS too takes the right to create.
            if missing:
                connection.script(text)
                created += missing
        if rebind:
            connection.execute("unbind", store.tables, source=store.source)
    return created


def _creations(
    store: PostgreSqlStore, error_queue: str | None
) -> Iterator[tuple[Sequence[TableName], str]]:
    delayed = store.delayed
    yield [delayed], _script("create_delayed", delayed=delayed, index=_index_name(delayed))
    for queue in _queues(store.addresses, error_queue):
        yield [queue], _script("create_queue", queue=queue)
    journal = journal_tables(delayed.schema)
    yield list(journal.values()), _script("create_journal", **journal)


def _queues(addresses: PostgreSqlAddresses, error_queue: str | None) -> Sequence[TableName]:
    own = addresses.own_queue
    return [own] if error_queue is None else [own, addresses.parse(error_queue)]


def _script(name: str, **names: object) -> str:
    return statement("postgresql", name).format(**names)


def _index_name(delayed: TableName) -> str:
    """`<table>_Due` as the transport calls it, shortened where PostgreSQL would cut the end off."""
    suffix = "_Due"
    name = delayed.table.encode()[: _NAME_BYTES - len(suffix)].decode(errors="ignore")
    return quoted(name + suffix)
