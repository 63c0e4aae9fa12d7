"""Journal to ledger: each sweep's outcomes, once, whatever dies in between.

A sweep is settled as a whole, once it is closed and no batch can commit to it any more. It is
sealed under a settle id for good; every append to the ledger carries that id, and Delta takes each
id once per table. So a settle that died is done again, from the start, under its old id.
"""

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from pyspark.sql import SparkSession

from duesweep.errors import ConfigError, LedgerError
from duesweep.ledger.journal_rows import JournalRows, sweeps_df
from duesweep.ledger.tables import TRANSACTION_RETENTION_DAYS, Ledger
from duesweep.stores.base import Journal
from duesweep.stores.values import SweepSummary, UnsettledSweep


def settle_leftovers(spark: SparkSession, journal: Journal, ledger: Ledger) -> None:
    """Settle what dead sweeps left: sealed groups first, then the rest as `abandoned`."""
    check_binding(journal, ledger)
    dead = journal.dead_sweeps()
    if not dead:
        return
    with journal.settling(), ledger.writing():
        for settle_id in _sealed(dead):
            _settle(spark, journal, ledger, settle_id)
        unsealed = [sweep for sweep in dead if sweep.settle_id is None]
        for sweep in unsealed:
            if not sweep.is_closed:
                journal.close_sweep(sweep.sweep_id, abandoned=True, remaining=0)
        if unsealed:
            _seal_and_settle(spark, journal, ledger, [sweep.sweep_id for sweep in unsealed])


def settle_sweep(
    spark: SparkSession, journal: Journal, ledger: Ledger, sweep_id: UUID
) -> SweepSummary:
    """Settle a sweep that its own driver has closed; its row of `sweeps`."""
    with journal.settling(), ledger.writing():
        (summary,) = _seal_and_settle(spark, journal, ledger, [sweep_id])
    return summary


def check_binding(journal: Journal, ledger: Ledger) -> None:
    """Raise `ConfigError` unless the journal belongs to this ledger; bind it where it is new."""
    ledger_id = ledger.ensure()
    bound = journal.bound_ledger(ledger_id)
    if bound != ledger_id:
        raise ConfigError(
            f"The journal of {journal.source} belongs to ledger {bound}, but {ledger.root} is "
            f"ledger {ledger_id}: set ledger.root to where the old one is, or, if it is gone for "
            "good, bind the journal to this one with `duesweep setup --rebind`"
        )


def _seal_and_settle(
    spark: SparkSession, journal: Journal, ledger: Ledger, sweep_ids: Sequence[UUID]
) -> Sequence[SweepSummary]:
    settle_id = uuid.uuid4()
    journal.seal(sweep_ids, settle_id)
    return _settle(spark, journal, ledger, settle_id)


def _settle(
    spark: SparkSession, journal: Journal, ledger: Ledger, settle_id: UUID
) -> Sequence[SweepSummary]:
    summaries, retries_changed = journal.summaries(settle_id)
    exhausted = journal.exhausted(settle_id)
    rows = JournalRows(spark, journal, settle_id)
    append = partial(ledger.append, settle_id=settle_id)
    # A commit is a second of mostly waiting, so the few rows of `sweeps` are written beside the
    # others; the order of the appends means nothing.
    with ThreadPoolExecutor(max_workers=1) as beside:
        appended = beside.submit(append, "sweeps", sweeps_df(spark, summaries))
        piece = 0
        for piece, dispatched_df in enumerate(rows.dispatched_dfs(), start=1):
            append("tombstones", dispatched_df, version=piece)
        if exhausted.rows:
            append("tombstones", rows.exhausted_df(exhausted), version=piece + 1)
            append("errors", rows.errors_df(exhausted))
        if retries_changed:
            ledger.replace_source("retries", rows.retries_df(), journal.source, settle_id=settle_id)
        appended.result()
    journal.delete_settled(settle_id)
    return summaries


def _sealed(dead: Sequence[UnsettledSweep]) -> Sequence[UUID]:
    oldest = datetime.now(UTC) - timedelta(days=TRANSACTION_RETENTION_DAYS)
    for sweep in dead:
        if sweep.sealed_at is not None and sweep.sealed_at < oldest:
            raise LedgerError(
                f"Sweep {sweep.sweep_id} was sealed on {sweep.sealed_at:%Y-%m-%d}, longer ago than "
                f"the ledger remembers its transactions ({TRANSACTION_RETENTION_DAYS} days), so "
                "settling it could double its rows: compare the ledger's tables with the journal "
                "for its sweep_id, and delete the sweep's rows from the journal"
            )
    return list(dict.fromkeys(s.settle_id for s in dead if s.settle_id is not None))
