"""Creates what NServiceBus's installers would create for an endpoint, plus the journal."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from duesweep.core.errors import ConfigError, Problem, StoreError
from duesweep.core.finding import refuse
from duesweep.core.policy import DEFAULT_TIMEOUTS, Timeouts
from duesweep.drivers.statements import Session
from duesweep.stores.dialect import Dialect, Location, WantedTable, journal_tables
from duesweep.stores.tables import (
    AGE_COLUMNS,
    estimated_rows,
    found_columns,
    missing_index,
    misspelt,
    refuse_other_tables,
    wanted_tables,
)

# Tables with the columns that each has to have, and the statements that create or complete them.
_Creation = tuple[Mapping[Any, Collection[str]], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSetup:
    """The tables of one database: queues, the table of subscriptions, and the store's tables if
    it is the store's.

    `setting` names the database. `readable` are the queues that have a
    column with the body as text.
    """

    dialect: Dialect
    dsn: str = field(repr=False)
    setting: str
    queues: Sequence[WantedTable] = ()
    store: Location | None = None
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    subscriptions: Any = None
    readable: tuple[Any, ...] = ()

    def script(self) -> str:
        """All statements, as the server's command-line tools take them."""
        store = self.store
        delayed = store.delayed if store else None
        creations = list(self._creations(delayed))
        first, *_ = (table for tables, _ in creations for table in tables)
        texts = [text for _, texts in creations for text in texts]
        if store is not None and store.kind.create is not None:
            index = self.dialect.tables.due_index(store.kind, delayed)
            texts += [index.setup] if index.setup else []
        return self.dialect.tables.script(first, texts)

    def grants(self, role: str) -> str:
        """The statements that grant a role what sweeps need in this database."""
        tables: Sequence[WantedTable] = self.queues
        if self.store is not None:
            tables = [*tables, *wanted_tables(self.store, self.store.delayed)]
        rights = {wanted.table: wanted.rights for wanted in tables}
        return self.dialect.tables.grants(role, rights, [queue.table for queue in self.queues])

    def misspelt(self) -> Problem | None:
        """That the store's delayed table would be new next to one that may be meant."""
        if self.store is None:
            return None
        with self.dialect.connect(self.dsn, self.timeouts.driver) as session:
            return misspelt(session, self.store, self.store.find_delayed(session))

    def check(self) -> None:
        """Raise `ConfigError` if a table is there with another shape, or the session may not write:
        before any step creates anything.
        """
        with self.dialect.connect(self.dsn, self.timeouts.driver) as session:
            self._check(session)

    def _check(self, session: Session) -> Any:
        """The delayed table, if this is the store's database."""
        tables, store = self.dialect.tables, self.store
        refuse(tables.check_session(session, self.setting))
        delayed = store.find_delayed(session) if store is not None else None
        wanted = list(self.queues)
        if store is not None:
            wanted += wanted_tables(store, delayed)
        refuse_other_tables(session, tables, wanted)
        return delayed

    def install(self, *, rebind: bool) -> Sequence[str | Problem]:
        """Create missing tables. Returns a sentence for each done step, and a problem for an index
        that could not be created. `rebind` frees the source, and the last sentence says so.

        Raises `ConfigError` where this role may not, and for a table of another shape.
        """
        with self.dialect.connect(self.dsn, self.timeouts.driver) as session:
            delayed = self._check(session)
            if self.store is None:
                return self._create_missing(session, None)
            done = self._create_missing(session, delayed)
            done += create_index(session, self.store, delayed)
            if rebind:
                done.append(_unbind(session, self.store, delayed))
            return done

    def _creations(self, delayed: Any) -> Iterator[_Creation]:
        create = self.dialect.tables.creation
        if self.store is not None:
            if self.store.kind.create is not None:
                yield {delayed: ()}, [create(self.store.kind.create, delayed=delayed)]
            journal = journal_tables(delayed)
            lacking: dict[Any, Collection[str]] = dict.fromkeys(journal.values(), ())
            lacking[journal["bindings"]] = AGE_COLUMNS
            yield lacking, [create("create_journal", **journal)]
        if self.subscriptions is not None:
            text = create("create_subscriptions", subscriptions=self.subscriptions)
            yield {self.subscriptions: ()}, [text]
        for queue in [wanted.table for wanted in self.queues]:
            text = create("create_queue", queue=queue)
            if queue in self.readable:
                readable = {queue: {self.dialect.tables.body_string}}
                # One statement after the other: both may declare the same variable.
                yield readable, [text, create("add_body_string", queue=queue)]
            else:
                yield {queue: ()}, [text]

    def _create_missing(self, session: Session, delayed: Any) -> list[str | Problem]:
        done, new, scripts = list[str | Problem](), [], []
        creations = list(self._creations(delayed))
        every = [table for tables, _ in creations for table in tables]
        found = found_columns(session, self.dialect.tables, every)
        for tables, texts in creations:
            lacking = [
                table
                for table, columns in tables.items()
                if (has := found.get(table)) is None or not set(columns) <= set(has)
            ]
            new += [table for table in lacking if table not in found]
            for table in lacking:
                # The journal's are one thing to people.
                name = "the journal" if set(tables[table]) == set(AGE_COLUMNS) else table
                is_new = table in new
                done.append(
                    f"created {table}" if is_new else f"added the columns that {name} lacked"
                )
            if lacking:
                # Only then: even CREATE TABLE IF NOT EXISTS takes the right to create tables.
                scripts.append((lacking, texts))
        named_by = "store.schema or retry.error_queue"
        self.dialect.tables.create(session, new, scripts, named_by)
        created = found_columns(session, self.dialect.tables, new) if new else {}
        for table in new:
            if table not in created:
                raise ConfigError(
                    f"The server reported that it created {table}, but there is no such table",
                    advice="look for an event trigger or a rule of the server that prevents it",
                )
        return done


def create_index(session: Session, store: Location, delayed: Any) -> Iterator[str | Problem]:
    """Create the index on Due of a table that is there and lacks it. Yields the result; if
    this user may not create it, why not, and what to do: sweeps work without it.
    """
    text = store.dialect.tables.due_index(store.kind, delayed).setup
    missing = missing_index(session, store, delayed) if store.kind.create else None
    if missing is None or text is None:
        return
    seconds = store.timeouts.plan_seconds(estimated_rows(session, delayed))
    try:
        with session.wait_longer(seconds):
            session.script(text)
    except StoreError as error:
        if error.transient:
            raise
        yield Problem(
            f"{missing.text}. It cannot be created: {error.text}",
            f"have the table's owner {missing.advice}",
        )
    else:
        yield f"created index {store.kind.index} on {delayed.sql}"


def _unbind(session: Session, store: Location, delayed: Any) -> str:
    statements = session.named(store.names(delayed))
    rows = statements.rows("read_binding", source=store.source)
    statements.execute("bind", source=store.source, delayed=delayed.sql, ledger_id=UUID(int=0))
    statements.execute("free", source=store.source)
    ledger_id = UUID(str(rows[0].ledger_id)) if rows else UUID(int=0)
    if not ledger_id.int:
        return (
            f"The journal of {store.source} was bound to no ledger; the next sweep binds it to the "
            "one at ledger.root"
        )
    return (
        f"The journal of {store.source} is freed from ledger {ledger_id}; the next sweep binds it "
        "to the ledger at ledger.root, and creates missing tables there"
    )
