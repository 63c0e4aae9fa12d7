"""The ledger: which tables it has, whose they are, and the writing of sweeps and commands, once;
and which writer a ledger has.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from duesweep.core import logs
from duesweep.core.account import SweepSummary, SweepTally
from duesweep.core.change import CommandName, UnsettledCommand
from duesweep.core.errors import ConfigError, LedgerError
from duesweep.core.format import LEDGER_FORMAT, format_mark, unknown_format
from duesweep.core.policy import DEFAULT_TIMEOUTS, LedgerWriter, Timeouts
from duesweep.core.world import NO_PATIENCE, Patience, World
from duesweep.ledger import durable
from duesweep.ledger.base import (
    CHANGES,
    TABLES,
    Among,
    Asked,
    Between,
    Condition,
    LedgerPiece,
    LedgerRow,
    LedgerTableFacts,
    LedgerTables,
    check_writable,
    clear_leftovers,
    is_path,
    local_folder,
    lock_for_writing,
    root_scheme,
)
from duesweep.stores.journal import Journal, Piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The schemes on which delta-rs's commits are safe next to another writer's:
# https://delta-io.github.io/delta-rs/
_SCHEMES = {"", "file", "s3", "s3a", "abfss", "gs"}
# Properties of each table: the ledger's id, and the table's name, by which a copy of another table
# is recognised.
ID_PROPERTY = "duesweep.ledgerId"
ROLE_PROPERTY = "duesweep.table"
# Properties of the first table. There is a table `changes`:
_CHANGES_PROPERTY = "duesweep.hasChanges"
# The format of all tables, see `core/format.py`.
_FORMAT_PROPERTY = "duesweep.format"
# And, by its name, the id of the journal that each source has.
_JOURNAL_PROPERTY = "duesweep.journal."
# JSON: the sources of which rows before an instant were removed.
_KEPT_FROM_PROPERTY = "duesweep.keptFrom"

TRANSACTION_RETENTION_DAYS = 90
# Longer than settle relies on, since two clocks are compared.
_RETENTION = f"interval {TRANSACTION_RETENTION_DAYS + 10} days"
# Statistics only of columns by which a reader can skip files. For random ids they only cost time.
_STATISTICS = "delta.dataSkippingStatsColumns"
_SKIPPED_BY = "sweep_id,source,due,dispatched_at"
# Pieces are written together up to this size. One of them may take 150 MB.
BYTES_TOGETHER = 4_000_000


@dataclass(frozen=True, slots=True)
class Identity:
    """`ledger_id` None: there is no ledger. `missing` are the names of tables that do not exist.
    `stray` are the locations of tables with data but no log. `has_changes`: the table `changes`
    belongs to the ledger. `journals` are the ids of the journals of sources, by the sources' names.
    `beyond` are features of tables that this reader does not have.
    """

    ledger_id: UUID | None
    missing: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()
    has_changes: bool = False
    journals: Mapping[str, str] = field(default_factory=dict)
    beyond: tuple[str, ...] = ()

    def refuse_stray(self) -> None:
        """Raise `ConfigError` where a new table would take in data files that are there already."""
        if self.stray:
            raise ConfigError(
                f"There are data files without a Delta log at {', '.join(self.stray)}",
                advice=(
                    "restore the _delta_log from a backup, or move the data away and, if the "
                    "journal is bound to a ledger, run the command `setup --rebind`"
                ),
            )

    def refuse_incomplete(self, root: str) -> None:
        """Raise `ConfigError` where a ledger in use has lost tables."""
        self.refuse_stray()
        if self.ledger_id is not None and self.missing:
            lost = ("the table " if len(self.missing) == 1 else "the tables ") + ", ".join(
                self.missing
            )
            raise ConfigError(
                f"The ledger {self.ledger_id} at {root} has lost {lost}",
                advice=(
                    "restore that from a backup, or, if it is gone for good, run the command "
                    "`setup --rebind`, and the next sweep creates an empty one"
                ),
            )


def identify(tables: Iterable[LedgerTableFacts]) -> Identity:
    """The ledger of these tables; `ConfigError` where a table is not of this ledger, or the ledger
    is newer than this version knows.
    """
    ids: dict[str, UUID] = {}
    missing, stray = [], []
    has_changes = False
    journals: dict[str, str] = {}
    beyond: list[str] = []
    for table in tables:
        beyond += [f"{feature} of the table {table.name}" for feature in table.beyond]
        for key, journal_id in (table.properties or {}).items():
            if key.startswith(_JOURNAL_PROPERTY):
                journals[key.removeprefix(_JOURNAL_PROPERTY)] = journal_id
        mark = (table.properties or {}).get(_FORMAT_PROPERTY)
        if newer := unknown_format(f"The ledger's table at {table.location}", mark, LEDGER_FORMAT):
            raise ConfigError.of(newer)
        has_changes = has_changes or _requires_changes(table)
        if table.properties is not None:
            ids[table.location] = _id_of(table, table.properties)
        else:
            missing.append(table.name)
            if table.holds_data:
                stray.append(table.location)
    if len(set(ids.values())) > 1:
        listed = ", ".join(f"{location} is of ledger {one}" for location, one in ids.items())
        raise ConfigError(
            f"Tables of different ledgers are under one root: {listed}",
            advice=(
                "move the tables that do not belong there, or set ledger.root to a folder or "
                "schema of its own"
            ),
        )
    ledger_id = next(iter(ids.values()), None)
    return Identity(ledger_id, tuple(missing), tuple(stray), has_changes, journals, tuple(beyond))


@dataclass(frozen=True, slots=True)
class Ledger:
    """The tables under one root, as one of the writers reaches them."""

    tables: LedgerTables
    world: World = field(default_factory=World)

    @property
    def root(self) -> str:
        """A path (with a `/` or a scheme) or a catalog schema."""
        return self.tables.root

    def read(self) -> Identity:
        """Find out which ledger is under the root.

        Raises `ConfigError` for an unsafe root and for tables of something else, `LedgerError`
        where the root cannot be read.
        """
        # In parallel: each read mostly waits for a log.
        with ThreadPoolExecutor(len(TABLES)) as pool:
            found = list(pool.map(self.tables.facts, TABLES))
        if any(map(_requires_changes, found)):
            found.append(self.tables.facts(CHANGES))
        return identify(found)

    def create(self, patience: Patience = NO_PATIENCE) -> UUID:
        """Create the tables that are missing. Returns the ledger's id, which another process
        may have created at the same time. If this dies halfway, the next call completes it.
        """
        check_writable(self.root)
        with lock_for_writing(self.root, patience):
            first, *others = TABLES
            identity = self._read_creatable()
            if first in identity.missing:
                self._create(first, identity.ledger_id or self.world.new_id())
                identity = self._read_creatable()
            if identity.ledger_id is None:
                raise LedgerError(
                    f"The ledger at {self.root} was created, but cannot be found there",
                    advice="check that all processes see the same ledger.root",
                    transient=False,
                )
            for name in (*others, CHANGES):
                if name in identity.missing:
                    self._create(name, identity.ledger_id)
        durable.make_durable(self.root)
        return identity.ledger_id

    def kept_from(self) -> dict[str, datetime]:
        """From when on the ledger has all rows of a source, by the source's name; of others it has
        all there were.
        """
        properties = self.tables.facts(TABLES[0]).properties or {}
        found = json.loads(properties.get(_KEPT_FROM_PROPERTY, "{}"))
        return {source: datetime.fromisoformat(moment) for source, moment in found.items()}

    def keep_from(self, source: str, moment: datetime) -> None:
        """Note that a source's rows before `moment` are about to be removed. The caller holds the
        lock. Raises `LedgerError` where another process notes something at the same time.
        """
        kept = self.kept_from() | {source: moment}
        text = json.dumps({source: moment.isoformat() for source, moment in kept.items()})
        self.tables.set_properties(TABLES[0], {_KEPT_FROM_PROPERTY: text})
        if self.kept_from().get(source) != moment:
            raise LedgerError(
                f"Another process changed the ledger at {self.root}; no rows were removed",
                advice="run the command again",
                transient=True,
            )

    def try_out(self) -> None:
        """Write, read and remove a small table next to the ledger's, as a sweep would. Raises the
        errors that the sweep would meet.
        """
        self.tables.try_out(f"duesweep_trial_{self.world.new_id().hex}")

    def recover(self, unsettled: Callable[[], Collection[str]], patience: Patience) -> None:
        """Drop commits that a power failure tore, of a local root. `unsettled` returns the ids of
        the sweeps and commands whose rows the journal has.

        Raises `LedgerError` if one stays. Nothing may be written after it, and no row forgotten:
        another source may drop it with all later ones.
        """
        folder = local_folder(self.root)
        if folder is None:
            return
        with durable.disk_errors(folder, "cannot be looked at"):
            if durable.has_torn(folder):
                with lock_for_writing(self.root, patience):
                    for path in durable.drop_torn(folder, unsettled()):
                        logs.warning(
                            "ledger_commit_dropped", path=path, reason="torn by a power failure"
                        )
                    durable.refuse_torn(folder)

    def keep_journal(self, source: str, journal_id: UUID, patience: Patience) -> None:
        """Note that a source has this journal."""
        with lock_for_writing(self.root, patience):
            key = f"{_JOURNAL_PROPERTY}{source}"
            self.tables.set_properties(TABLES[0], {key: str(journal_id)})

    def has(self, sweep_id: UUID) -> bool:
        """Whether the ledger has rows of a sweep or a command."""
        return self.tables.has("sweeps", sweep_id) or self.tables.has(CHANGES, sweep_id)

    def since(self, source: str, moment: datetime) -> Iterable[str]:
        """The sweeps and commands of a source that ended after a moment, each once."""
        ended = {"sweeps": "end", CHANGES: "changed_at"}.items()
        of_source = Among("source", [source])
        return dict.fromkeys(
            row["sweep_id"]
            for name, column in ended
            for row in self.rows(name, ["sweep_id"], of_source, Between(column, moment))
        )

    def write_sweep(
        self,
        journal: Journal,
        summary: SweepSummary,
        exhausted: Sequence[Piece],
        patience: Patience,
        *,
        retries_changed: bool,
        tally: SweepTally | None = None,
    ) -> None:
        """Write all rows of a sealed sweep; rows that the tables already have stay as they are. The
        `tally` counts them.

        The journal is read before the lock is taken: its server may not answer, and other sources
        write to the same ledger. Raises `LedgerLockedError` once patience is at its end.
        """
        pieces = pieces_of(
            journal, summary, exhausted, retries_changed=retries_changed, tally=tally
        )
        for together in _groups(pieces):
            self._write(together, patience)
            # Before the next piece is read: bodies may be large.
            together.clear()

    def write_command(
        self,
        journal: Journal,
        sweep_id: UUID,
        command: UnsettledCommand,
        patience: Patience,
    ) -> None:
        """Write all rows of a sealed command; rows that the tables already have stay as they are.
        A command has no row in `sweeps`.
        """
        from duesweep.ledger import rows  # noqa: PLC0415 - see `pieces_of`

        is_cancel = command.command.name is CommandName.CANCEL
        changes = journal.pieces(sweep_id, command=True)
        if not changes:
            return
        with lock_for_writing(self.root, patience):
            self._require_changes()
        for number, piece in enumerate(changes, start=1):
            for name, changed in zip(
                ("tombstones", CHANGES), rows.changes(journal, piece), strict=True
            ):
                if is_cancel or name == CHANGES:
                    self._write([LedgerPiece(name, changed, sweep_id, number)], patience)
            # Before the next piece is read: bodies may be large.
            del changed
        if command.attempts_changed:
            counters = rows.retries(journal)
            retries = LedgerPiece("retries", counters, sweep_id, replaces=journal.source)
            self._write([retries], patience)

    def rows(
        self, name: str, columns: Sequence[str], *conditions: Condition
    ) -> Iterator[LedgerRow]:
        """Rows of a table, as a stream: all that fit the conditions; none if there is no table."""
        return self.tables.read(name, columns, conditions)

    def ask(self, question: str, tables: Asked, **values: str | int) -> Iterator[LedgerRow]:
        """The rows of a statement; see `LedgerTables.ask`."""
        return self.tables.ask(question, tables, **values)

    def _write(self, pieces: Sequence[LedgerPiece], patience: Patience) -> None:
        """Write pieces of several tables under one lock. Their order does not matter: if this dies,
        the next settler writes the missing rows.
        """
        together: defaultdict[tuple[str, str | None], list[LedgerPiece]] = defaultdict(list)
        for piece in pieces:
            together[piece.table, piece.replaces].append(piece)
        # In parallel, because a commit is mostly waiting.
        with lock_for_writing(self.root, patience), ThreadPoolExecutor(len(TABLES)) as pool:
            written = [pool.submit(self.tables.write, of_one) for of_one in together.values()]
            for each in written:
                each.result()

    def _require_changes(self) -> None:
        """Create the table `changes`, unless the ledger has it. The caller holds the lock."""
        identity = self.read()
        if identity.has_changes:
            return
        there = self.tables.facts(CHANGES)
        # Data of others, or another ledger's table: the ledger must not take it over.
        identify([self.tables.facts(TABLES[0]), there]).refuse_stray()
        if there.properties is None:
            self._create(CHANGES, identity.ledger_id)
            durable.make_durable(self.root)
        # Last: if this dies before, the next one finds the table and continues here.
        self.tables.set_properties(TABLES[0], {_CHANGES_PROPERTY: "true"})

    def _read_creatable(self) -> Identity:
        identity = self.read()
        identity.refuse_stray()
        return identity

    def _create(self, name: str, ledger_id: UUID | None) -> None:
        folder = local_folder(self.root)
        if folder is not None:
            clear_leftovers(folder / name)
        properties = {
            "delta.setTransactionRetentionDuration": _RETENTION,
            ID_PROPERTY: str(ledger_id),
            ROLE_PROPERTY: name,
        }
        if name == TABLES[0]:
            properties |= {_STATISTICS: _SKIPPED_BY, _FORMAT_PROPERTY: format_mark(LEDGER_FORMAT)}
        self.tables.create(name, properties)


def pieces_of(
    journal: Journal,
    summary: SweepSummary,
    exhausted: Sequence[Piece],
    *,
    retries_changed: bool,
    tally: SweepTally | None = None,
) -> Iterator[LedgerPiece]:
    """All pieces of a sweep, always the same. Their ids and numbers are for ever, because tables
    know their rows by them. The `tally` counts their messages.

    Exhausted messages are counted separately, except for a single piece, which has the sweep's
    own transactions: in `tombstones` the next one after the dispatched messages.
    """
    # Loads pyarrow, which idle sweeps do not need.
    from duesweep.ledger import rows  # noqa: PLC0415

    sweep_id = UUID(summary.sweep_id)
    yield LedgerPiece("sweeps", rows.sweep(summary), sweep_id)
    if retries_changed:
        retries = rows.retries(journal, summary, tally)
        yield LedgerPiece("retries", retries, sweep_id, replaces=journal.source)
    number = 0
    for number, dispatched in enumerate(rows.dispatched(journal, sweep_id, tally), start=1):
        yield LedgerPiece("tombstones", dispatched, sweep_id, number)
    for of_exhausted, piece in enumerate(exhausted, start=1):
        tombstones, errors = rows.exhausted(journal, piece, tally)
        if len(exhausted) == 1:
            yield LedgerPiece("tombstones", tombstones, sweep_id, number + 1)
            yield LedgerPiece("errors", errors, sweep_id)
        else:
            part = (sweep_id, of_exhausted, "exhausted")
            yield LedgerPiece("tombstones", tombstones, *part)
            yield LedgerPiece("errors", errors, *part)
        del tombstones, errors


def _groups(pieces: Iterable[LedgerPiece]) -> Iterator[list[LedgerPiece]]:
    """Pieces to write together, so that small ones share a commit. The reader clears each list, so
    that the pieces of one are in memory at a time.
    """
    group: list[LedgerPiece] = []
    for piece in pieces:
        group.append(piece)
        # Otherwise it would be there until the next piece is read.
        del piece
        if sum(one.rows.bytes for one in group) >= BYTES_TOGETHER:
            yield group
            group = []
    if group:
        yield group


def _requires_changes(table: LedgerTableFacts) -> bool:
    """Whether this table says that the ledger also has the table `changes`."""
    return _CHANGES_PROPERTY in (table.properties or {})


def _id_of(table: LedgerTableFacts, properties: Mapping[str, str]) -> UUID:
    try:
        ledger_id, role = UUID(properties[ID_PROPERTY]), properties[ROLE_PROPERTY]
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"{table.location} is not a table of a duesweep ledger",
            advice="set ledger.root to a folder or schema of its own",
        ) from error
    if role != table.name:
        raise ConfigError(
            f"The table at {table.location} is the ledger's {role}, but should be {table.name}",
            advice="move it to its own location",
        )
    return ledger_id


def open_ledger(
    root: str,
    writer: LedgerWriter,
    spark: "SparkSession | None",
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Ledger:
    """The ledger under `root`; Spark's writer needs the session. `AUTO` is delta-rs, unless the
    session finds that path on another file system. On S3 the two do not know of each other's
    commits, so a session does not matter there: a large sweep has one, and a small one has none.
    """
    if writer is LedgerWriter.AUTO and spark is not None and local_folder(root) is not None:
        writer = LedgerWriter.SPARK if _has_other_files(spark) else LedgerWriter.DELTA_RS
    if writer is not LedgerWriter.SPARK:
        from duesweep.ledger.delta_rs import DeltaRsTables  # noqa: PLC0415 - slow to load

        return Ledger(DeltaRsTables(root, timeouts.silence_seconds))
    if spark is None:
        raise ValueError("The Spark writer needs a session")
    from duesweep.ledger.spark import SparkTables  # noqa: PLC0415 - loads Spark

    return Ledger(SparkTables(spark, root))


def require_delta_rs_root(root: str) -> None:
    """Raise `ConfigError` for a root that delta-rs cannot write."""
    if not can_delta_rs_reach(root):
        raise ConfigError(
            f"delta-rs cannot write a ledger at {root}",
            advice='set ledger.writer = "spark", or ledger.root to a folder or to s3:, abfss:, gs:',
        )


def can_delta_rs_reach(root: str) -> bool:
    """Whether delta-rs can read and write a ledger there."""
    # delta-rs takes a percent sign in a path for an escape, however it is written.
    is_known = is_path(root) and root_scheme(root) in _SCHEMES
    return is_known and "%" not in root


def _has_other_files(spark: "SparkSession") -> bool:
    """Whether a path without a scheme is not this machine's for this session."""
    if ".connect." in type(spark).__module__:
        return True
    files = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")  # noqa: SLF001 - PySpark has no other way
    return not str(files).startswith("file:")
