"""Settles old work, removes old rows, and tidies up the ledger's files.

Sweeps may run at the same time, with either writer: each step is a transaction of Delta's or of the
store's, and tries again after a conflict. On a local ledger each step waits for the writers' lock,
and writers wait for the step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duesweep.core import logs
from duesweep.core.errors import ConfigError, ExitCode
from duesweep.core.result import Result
from duesweep.core.world import Patience, instant_of, micros
from duesweep.ledger.base import CHANGES, TABLES, Among, TableSize, local_folder, lock_for_writing
from duesweep.ledger.durable import make_durable
from duesweep.ledger.ledger import Ledger
from duesweep.operations.endpoint import Endpoint
from duesweep.operations.opening import command_ledger
from duesweep.stores.base import OperatorDriver, operators_of
from duesweep.stores.people import DroppedSource
from duesweep.sweep.settle import settle_dead, settle_one

# The tables of which retention removes rows, with the instant that counts.
_AGING = {"tombstones": "dispatched_at", "sweeps": "end"}
_MOST_COUNTERS = 1_000_000
# It runs once a day, so it is patient with sweeps that settle much.
_LOCK_SECONDS = 60.0
# The instants of a row and of its sweep may be rounded differently.
_MARGIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class TableReport:
    """The changes to a table of the ledger. `rows_removed`: for their age. `files_compacted`:
    small files that were written together. `files_deleted` None: the writer does not tell.
    """

    table: str
    before: TableSize
    after: TableSize
    rows_removed: int
    files_compacted: int
    files_deleted: int | None


@dataclass(frozen=True, slots=True)
class MaintainReport(Result):
    """The result. `settled`: sweeps and commands that dead drivers had left. `counters_removed`:
    retry counters of messages that are gone. `kept_from`: from when on the ledger has all rows;
    None: it has all there were. `rows_forgotten`: rows of `dropped` sources that were deleted.
    """

    source: str
    settled: int
    counters_removed: int
    kept_from: datetime | None
    tables: Sequence[TableReport]
    dropped: Sequence[DroppedSource]
    rows_forgotten: int
    exit_code: ExitCode = ExitCode.DONE


def maintain(endpoint: Endpoint, *, forget: Sequence[str] = ()) -> MaintainReport:
    """Settle, remove old rows, and tidy up the ledger's files; `forget` are sources, whose
    endpoints are gone, that are to be forgotten. Raises `LedgerError` where the ledger cannot be
    written, `ConfigError` for a store that cannot be looked after and a source that is not to be
    forgotten; the changes until then stay.
    """
    context, kept = endpoint.context, endpoint.config.ledger
    if kept.vacuum_days == 0 and local_folder(context.ledger_root) is None:
        # No lock holds writers back there.
        raise ConfigError(
            "ledger.vacuum_days is 0: that could delete files which a sweep is writing to "
            f"{context.ledger_root}",
            advice="set at least 1; only a local ledger takes 0",
        )
    operators = operators_of(context.store, "maintenance")
    with operators.open_driver() as session, command_ledger(context, endpoint.spark) as ledger:
        session.check()
        dropped = session.people.dropped()
        for source in forget:
            _check_dropped(source, dropped)
        logs.step("settles interrupted sweeps and commands")
        left = {one.sweep_id for one in session.journal.unsettled() if not one.is_alive}
        settle_dead(session, ledger, Patience(_LOCK_SECONDS))
        settled = len(left - {one.sweep_id for one in session.journal.unsettled()})
        logs.step("removes retry counters of messages that are gone")
        counters = _remove_counters(session, ledger)
        logs.step("looks for rows that are too old")
        cut = _cut(session.source, ledger, kept.keep_days)
        tables = _tables(session.source, ledger, cut=cut, vacuum_days=kept.vacuum_days)
        return MaintainReport(
            source=session.source,
            settled=settled,
            counters_removed=counters,
            kept_from=ledger.kept_from().get(session.source),
            tables=list(tables),
            dropped=dropped,
            rows_forgotten=sum(session.people.forget(source) for source in forget),
        )


def _remove_counters(session: OperatorDriver, ledger: Ledger) -> int:
    """An empty sweep removes them, and brings the ledger's copy up to date."""
    gone = len(session.people.gone_counters(_MOST_COUNTERS))
    if gone:
        run = session.sweeps.open(session.due.horizon(), engine="in-process")
        session.sweeps.close(run.sweep_id, abandoned=False, remaining=0)
        settle_one(session, ledger, run.sweep_id, Patience(_LOCK_SECONDS))
    return gone


def _cut(source: str, ledger: Ledger, keep_days: int | None) -> datetime | None:
    """Before which rows are to be removed; noted in the ledger."""
    if keep_days is None:
        return None
    cut = last_gap(ledger, source, datetime.now(UTC) - timedelta(days=keep_days))
    with lock_for_writing(ledger.root, Patience(_LOCK_SECONDS)):
        before = ledger.kept_from().get(source)
        if before is not None and cut <= before:
            return before
        ledger.keep_from(source, cut)
    return cut


def last_gap(ledger: Ledger, source: str, wanted: datetime) -> datetime:
    """The last instant up to `wanted` that no sweep spans: none is to be cut in two."""
    sweeps = {"sweeps": [Among("source", [source])]}
    limits = {"wanted": micros(wanted), "margin": _MARGIN // timedelta(microseconds=1)}
    found = next(ledger.ask("last_gap", sweeps, **limits), {"gap": limits["wanted"]})
    return instant_of(found["gap"])


def _tables(
    source: str, ledger: Ledger, *, cut: datetime | None, vacuum_days: int
) -> Iterator[TableReport]:
    tables = ledger.tables
    for name in (*TABLES, CHANGES):
        before = tables.size(name)
        if before is None:
            continue
        removed = 0
        if cut is not None and name in _AGING:
            logs.step(f"{name}: removes old rows")
            with lock_for_writing(ledger.root, Patience(_LOCK_SECONDS)):
                removed = tables.remove(name, source, _AGING[name], cut)
        logs.step(f"{name}: writes small files together")
        with lock_for_writing(ledger.root, Patience(_LOCK_SECONDS)):
            compacted = tables.compact(name)
        logs.step(f"{name}: deletes files that no reader needs")
        with lock_for_writing(ledger.root, Patience(_LOCK_SECONDS)):
            # Files that are on the disk may only go if the ones in their place are there too, also
            # the ones of other processes.
            make_durable(ledger.root)
            vacuumed = tables.vacuum(name, vacuum_days)
        after = tables.size(name) or TableSize()
        yield TableReport(name, before, after, removed, compacted, vacuumed)


def _check_dropped(source: str, dropped: Sequence[DroppedSource]) -> None:
    found = next((one for one in dropped if one.source == source), None)
    if found is None:
        known = ", ".join(one.source for one in dropped) or "none"
        raise ConfigError(
            f"{source} is unknown, or its delayed table exists. Sources without one: {known}",
            advice="drop the table first, or leave out --forget",
        )
    if found.unsettled:
        raise ConfigError(
            f"{source} has {found.unsettled} sweeps or commands that its ledger may lack",
            advice="create its delayed table again, empty, and run `duesweep sweep` for it",
        )
