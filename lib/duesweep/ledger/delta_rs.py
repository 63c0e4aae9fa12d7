"""The ledger's tables by delta-rs, without a JVM: for ledgers under a path.

delta-rs reads credentials from the environment, as in AWS_ACCESS_KEY_ID:
https://delta-io.github.io/delta-rs/usage/loading-table/
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    TableNotFoundError,
)

from duesweep.core.errors import ConfigError, LedgerError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.core.world import World, micros
from duesweep.ledger.base import (
    Among,
    Asked,
    Between,
    Condition,
    LedgerPiece,
    LedgerRow,
    LedgerTableFacts,
    LedgerTables,
    Rows,
    TableSize,
    check_space,
    holds_data,
    local_folder,
    nearest_folder,
    table_path,
)
from duesweep.ledger.causes import cause_of
from duesweep.ledger.durable import find_damage, make_durable, repair
from duesweep.ledger.query import FAILURES, Query, features_beyond, literal
from duesweep.ledger.rows import SCHEMAS, comments

if TYPE_CHECKING:
    from pyarrow import fs

_CONFLICT_TRIES = 5
_HOURS = 24
# After this many commits a table's small files become one of about 2 MB, which then stays as it is:
# a watcher commits 360 times an hour, and a ledger is to have fewer than 100 files after it. Rarer
# compactions take no less CPU. Not of `errors`, whose messages would have to fit
# into memory.
_COMPACT_EVERY, _COMPACTED_BYTES, _COMPACTED = 25, 2_000_000, {"tombstones", "sweeps"}
# For `compact`, Delta's default for others; a file of messages that are kept whole has to fit into
# memory.
_FILE_BYTES, _FILE_BYTES_WITH_BODIES = 100_000_000, 16_000_000
_WITH_BODIES = {"errors", "changes"}
# Properties of a table that name its CHECK constraints.
_RULE = "delta.constraints."
# A group of rows is in memory until it is written: 500,000 at once took 200 MB, these take 80. With
# properties of one's own there is no compression unless one says which; this is the default.
#
# No query looks for a body or finds two that are equal: its dictionary and its statistics only hold
# copies of it. Two bodies of 16 MB took 300 MB, and take 160.
_FILES = WriterProperties(
    max_row_group_size=100_000,
    compression="SNAPPY",
    column_properties={
        "body": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
    },
)

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class DeltaRsTables(LedgerTables):
    """The tables under a path: a local folder, `s3://`, `abfss://` or `gs://`. A storage that does
    not answer ends a call within `silence_seconds`.
    """

    root: str
    silence_seconds: float = DEFAULT_TIMEOUTS.silence_seconds
    world: World = field(default_factory=World)

    def facts(self, name: str) -> LedgerTableFacts:
        location = self._location(name)
        with self._map_errors(name, "is unreadable"):
            try:
                table = self._open(name)
                properties = table.metadata().configuration
            except TableNotFoundError:
                return LedgerTableFacts(name, location, holds_data=self._holds_data(name))
        return LedgerTableFacts(name, location, properties, beyond=features_beyond(table))

    def create(self, name: str, properties: Mapping[str, str]) -> None:
        texts = comments(name)
        columns = [field.with_metadata({"comment": texts[field.name]}) for field in SCHEMAS[name]]
        # The loser of a race finds the other one's table.
        with (
            self._map_errors(name, "could not be created"),
            suppress(CommitFailedError),
        ):
            DeltaTable.create(
                self._uri(name),
                pa.schema(columns),
                mode="ignore",
                description=texts[""],
                storage_options=self._options(),
                configuration=dict(properties),
                # The ledger's own properties are no keys of Delta's.
                raise_if_key_not_exists=False,
            )

    def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        # In a conflict, another process has done the same.
        with (
            self._map_errors(name, "could not be marked as the ledger's"),
            suppress(CommitFailedError),
        ):
            self._open(name).alter.set_table_properties(dict(properties), raise_if_not_exists=False)

    def write(self, pieces: Sequence[LedgerPiece]) -> None:
        """In one commit."""
        name, replaces = pieces[0].table, pieces[0].replaces
        how: dict[str, Any] = {"mode": "append"}
        if replaces is not None:
            how = {"mode": "overwrite", "predicate": f"source = {literal(replaces)}"}

        def write(table: DeltaTable) -> None:
            new = [
                piece
                for piece in pieces
                if (table.transaction_version(piece.app_id) or 0) < piece.version
            ]
            if not new:
                return
            # In the middle of a write delta-rs panics, and prints the stacks of its threads.
            check_space(self.root, sum(piece.rows.bytes for piece in new))
            batches = chain.from_iterable(piece.rows.batches() for piece in new)
            try:
                write_deltalake(
                    table,
                    pa.RecordBatchReader.from_batches(SCHEMAS[name], batches),
                    schema_mode="merge",
                    writer_properties=_FILES,
                    commit_properties=_marks(new, self.world.clock.now()),
                    **how,
                )
            except DeltaError as error:
                if "validation check" in str(error):
                    raise _refusal(self._location(name), table, name, error) from error
                raise
            if name in _COMPACTED and table.version() % _COMPACT_EVERY == 0:
                self._compact_small(table, name)

        kept = "; the journal keeps the rows, and the next sweep tries again"
        self._commit(name, "written", write, consequence=kept)

    def read(
        self, name: str, columns: Sequence[str], conditions: Sequence[Condition]
    ) -> Iterator[LedgerRow]:
        """The memory that it takes is bounded."""
        with self._reading(name), Query(with_bodies="body" in columns) as query:
            query.register(name, self._open(name))
            yield from query.read(name, columns, conditions)

    def ask(self, question: str, tables: Asked, **values: str | int) -> Iterator[LedgerRow]:
        """By DataFusion, which delta-rs brings along."""
        first, *_ = tables
        with Query() as query:
            for name in tables:
                with self._reading(name):
                    query.register(name, self._open(name))
            if first in query.names:
                with self._map_errors(first, "is unreadable", others=query.names):
                    yield from query.ask(question, tables, values)

    def has(self, name: str, sweep_id: UUID) -> bool:
        with self._reading(name):
            # Delta remembers transactions for a time only.
            if self._open(name).transaction_version(str(sweep_id)) is not None:
                return True
        return any(
            True for _ in self.read(name, ["sweep_id"], [Among("sweep_id", [str(sweep_id)])])
        )

    def arrow(self, name: str) -> pa.Table:
        """A whole table, in memory. Raises `ConfigError` if it is missing."""
        with self._map_errors(name, "is unreadable"):
            try:
                table = self._open(name)
                return table.to_pyarrow_table(filesystem=_filesystem(table.table_uri))
            except TableNotFoundError as error:
                raise ConfigError(
                    f"There is no table {name} in the ledger at {self.root}",
                    advice="check ledger.root; the first sweep creates the ledger, and the first "
                    "command that changes messages its table `changes`",
                ) from error

    def size(self, name: str) -> TableSize | None:
        with self._map_errors(name, "is unreadable"):
            try:
                files = pa.table(self._open(name).get_add_actions())
            except TableNotFoundError:
                return None
        return TableSize(files.num_rows, sum(files["size_bytes"].to_pylist()))

    def remove(self, name: str, source: str, column: str, before: datetime) -> int:
        old: list[Condition] = [Among("source", [source]), Between(column, end=before)]

        def replace_by_nothing(table: DeltaTable) -> int:
            with Query() as query:
                query.register(name, table)
                predicate = query.where(old)
                count = query.count(name, predicate)
            if count:
                # The files that delta-rs's `delete` writes have texts as views (see `_has_views`).
                write_deltalake(
                    table,
                    pa.RecordBatchReader.from_batches(SCHEMAS[name], []),
                    mode="overwrite",
                    predicate=predicate,
                    schema_mode="merge",
                    writer_properties=_FILES,
                )
            return count

        return self._commit(name, "cut", replace_by_nothing)

    def compact(self, name: str) -> int:
        size = _FILE_BYTES_WITH_BODIES if name in _WITH_BODIES else _FILE_BYTES
        done = self._commit(
            name,
            "compacted",
            lambda table: table.optimize.compact(
                target_size=size, max_concurrent_tasks=1, writer_properties=_FILES
            ),
        )
        again = self._compact_views(name) if name in _COMPACTED else 0
        return int(done["numFilesRemoved"]) + again

    def _compact_views(self, name: str) -> int:
        """Write a table again whose files others have to read otherwise than its newer ones."""

        def write(table: DeltaTable) -> int:
            if not _has_views(table):
                return 0
            return int(table.optimize.z_order(["source"])["numFilesRemoved"])

        return self._commit(name, "compacted", write)

    def try_out(self, trial: str) -> None:
        folder = local_folder(self.root)
        root = self.root if folder is None else str(nearest_folder(folder))
        tried = replace(self, root=table_path(root, trial))
        row = pa.RecordBatch.from_pylist([{"source": trial}], SCHEMAS["retries"])
        try:
            tried.create("retries", {})
            tried.write([LedgerPiece("retries", Rows(lambda: [row]), self.world.new_id())])
            found = list(tried.read("retries", ["source"], []))
        finally:
            _remove(tried.root, self._options())
        if len(found) != 1:
            raise LedgerError(
                f"A row that was written to {tried.root} cannot be read there",
                advice="check that ledger.root is one storage for all processes",
                transient=False,
            )

    def vacuum(self, name: str, days: int) -> int:
        def clean(table: DeltaTable) -> list[str]:
            deleted = table.vacuum(
                days * _HOURS, dry_run=False, enforce_retention_duration=False, full=True
            )
            newest = self._open(name)
            newest.create_checkpoint()
            make_durable(self.root)
            newest.cleanup_metadata()
            return deleted

        return len(self._commit(name, "cleaned", clean))

    def _commit(
        self, name: str, what: str, act: Callable[[DeltaTable], _Done], *, consequence: str = ""
    ) -> _Done:
        """Act on the newest version of a table, again after each commit of another process."""
        with self._map_errors(name, f"could not be {what}", consequence):
            for _ in range(_CONFLICT_TRIES - 1):
                with suppress(CommitFailedError):
                    # A write to the path instead would create a lost table again.
                    return act(self._open(name))
            return act(self._open(name))

    def _compact_small(self, table: DeltaTable, name: str) -> None:
        """Compact the table. If that fails, the rows are still written."""
        with suppress(LedgerError, ValueError), self._map_errors(name, "could not be compacted"):
            # Much more than the files of a hundred small sweeps take.
            check_space(self.root, 10 * _COMPACTED_BYTES)
            table.optimize.compact(target_size=_COMPACTED_BYTES, max_concurrent_tasks=1)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Map the errors of a read; that there is no table is none."""
        with self._map_errors(name, "is unreadable"), suppress(TableNotFoundError):
            yield

    @contextmanager
    def _map_errors(
        self, name: str, failure: str, consequence: str = "", others: Iterable[str] = ()
    ) -> Iterator[None]:
        """Turn delta-rs's errors into `LedgerError`s that name the table, and the damaged file if
        there is one, of this table or the others.
        """
        try:
            yield
        except BaseException as error:
            if not _is_of_delta_rs(error):
                raise
            is_protocol = isinstance(error, DeltaProtocolError)
            text, may_pass, advice = cause_of(
                str(error) or type(error).__name__, is_protocol=is_protocol
            )
            folder = local_folder(self.root)
            if (
                folder is not None
                and not may_pass
                and (damage := find_damage(folder, (name, *others)))
            ):
                name, problem = damage
                text, advice = problem.text, problem.advice
            raise LedgerError(
                f"{self._location(name)} {failure}: {text}{consequence}",
                advice=advice,
                transient=bool(may_pass),
            ) from error

    def _open(self, name: str) -> DeltaTable:
        """The table in its newest version. Raises `LedgerError` where the newest commit is an empty
        file, as a power failure leaves it: for delta-rs that is a commit that changed nothing.
        """
        table = DeltaTable(self._uri(name), storage_options=self._options())
        folder = local_folder(self.root)
        if folder is not None:
            newest = folder / name / "_delta_log" / f"{table.version():020}.json"
            # It may have become a part of a checkpoint, and be gone.
            with suppress(FileNotFoundError):
                if not newest.stat().st_size:
                    raise LedgerError(
                        f"{self._location(name)} is damaged: {newest} is empty",
                        advice=repair(folder),
                        transient=False,
                    )
        return table

    def _options(self) -> dict[str, str] | None:
        """Limits for a storage on the network. Credentials come from the environment."""
        if local_folder(self.root) is not None:
            return None
        answer = f"{self.silence_seconds / 6:.0f}s"
        tries = {"max_retries": "1", "retry_timeout": f"{self.silence_seconds / 3:.0f}s"}
        return {"timeout": answer, "connect_timeout": answer, **tries}

    def _location(self, name: str) -> str:
        """The table's location, for people."""
        folder = local_folder(self.root)
        return str(folder / name) if folder else table_path(self.root, name)

    def _uri(self, name: str) -> str:
        """The same for delta-rs."""
        folder = local_folder(self.root)
        if folder is not None:
            return (folder.absolute() / name).as_uri()
        return table_path(self.root, name)

    def _holds_data(self, name: str) -> bool:
        folder = local_folder(self.root)
        if folder is not None:
            return holds_data(folder / name)
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - local ledgers do without

        storage = _storage(self._uri(name), self._options())
        found = storage.get_file_info(FileSelector("", allow_not_found=True))
        return any(not entry.base_name.startswith(("_", ".")) for entry in found)


def _remove(root: str, options: dict[str, str] | None) -> None:
    """Remove all under a root, as far as this process may."""
    folder = local_folder(root)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415 - local ledgers do without

    # A root that no storage can be opened at has nothing to remove; the trial itself says why.
    with suppress(*FAILURES, NotImplementedError):
        storage = _storage(root, options)
        # delta-rs itself removes no folder.
        for entry in storage.get_file_info(FileSelector("", recursive=True)):
            if entry.type is FileType.File:
                storage.delete_file(entry.path)


def _storage(root: str, options: dict[str, str] | None) -> Any:
    """The files under a root that is no local one."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - local ledgers do without
    from pyarrow.fs import PyFileSystem  # noqa: PLC0415

    return PyFileSystem(DeltaStorageHandler(root, options))


def _marks(pieces: Sequence[LedgerPiece], now: datetime) -> CommitProperties:
    # Spark takes a transaction without a time for one that has expired.
    now_ms = micros(now) // 1_000
    # A commit has an id once. The last version says that the table also has the ones before it.
    versions = {piece.app_id: piece.version for piece in pieces}
    return CommitProperties(
        app_transactions=[Transaction(*each, now_ms) for each in versions.items()]
    )


def _is_of_delta_rs(error: BaseException) -> bool:
    """A query raises a plain `Exception`. A panic of Rust's is none, and its class cannot be
    imported.
    """
    is_plain = type(error) is Exception or type(error).__name__ == "PanicException"
    return is_plain or isinstance(error, FAILURES)


def _refusal(location: str, table: DeltaTable, name: str, error: DeltaError) -> LedgerError:
    """Which columns and rules of the table refuse the rows: delta-rs says only that it checked
    them.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    columns = [
        f"the column {each['name']} is NOT NULL"
        for each in fields
        if not each["nullable"] and each["name"] not in SCHEMAS[name].names
    ]
    rules = [
        f"the rule {key.removeprefix(_RULE)} is {text}"
        for key, text in table.metadata().configuration.items()
        if key.startswith(_RULE)
    ]
    found = ", ".join([*columns, *rules]) or cause_of(str(error)).text
    return LedgerError(
        f"{location} does not take the ledger's rows: {found}; the journal keeps them",
        advice="find out who changed the table (`DESCRIBE HISTORY`), and undo that",
        transient=False,
    )


def _filesystem(uri: str) -> "fs.FileSystem | None":
    """pyarrow's own for a local folder: with delta-rs's, which is Python's, a thread that still
    reads when Python ends would abort the process. None: delta-rs's.
    """
    if urlsplit(uri).scheme not in {"", "file"}:
        return None
    from pyarrow import fs  # noqa: PLC0415 - a sweep does without

    local, path = fs.FileSystem.from_uri(uri)
    return fs.SubTreeFileSystem(path, local)


def _has_views(table: DeltaTable) -> bool:
    """Whether delta-rs has rewritten a file, as its `delete` and `update` do: its texts are views,
    and pyarrow, and with it DuckDB, cannot compare these to the texts of a filter.
    """
    dataset = table.to_pyarrow_dataset(filesystem=_filesystem(table.table_uri))
    return any(
        str(field.type) == "string_view"
        for fragment in dataset.get_fragments()
        for field in fragment.physical_schema
    )
