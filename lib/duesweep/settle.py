"""Journal to ledger: each sweep's outcomes, once, whatever dies in between.

A sweep is settled as a whole, once it is closed and no batch can commit to it any more. Every
append to the ledger carries the sweep's id as its transaction, and Delta takes each once per table.
So a settle that died is done again from the start, by anybody, and so is a restored journal's.
"""

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
    """Settle what dead sweeps left; those that nobody closed count as `abandoned`."""
    check_binding(journal, ledger)
    if not journal.dead_sweeps():
        return
    with journal.settling(), ledger.writing():
        # Again, since another settler may have been at them until just now.
        for sweep in journal.dead_sweeps():
            if not sweep.is_closed:
                journal.close_sweep(sweep.sweep_id, abandoned=True, remaining=0)
            _check_age(sweep)
            _settle(spark, journal, ledger, sweep.sweep_id)


def settle_sweep(
    spark: SparkSession, journal: Journal, ledger: Ledger, sweep_id: UUID
) -> SweepSummary:
    """Settle a sweep that its own driver has closed; its row of `sweeps`."""
    with journal.settling(), ledger.writing():
        return _settle(spark, journal, ledger, sweep_id)


def check_binding(journal: Journal, ledger: Ledger) -> None:
    """Raise `ConfigError` unless the journal belongs to this ledger; bind it where it is new."""
    bound = journal.binding()
    found = ledger.read_id()
    if bound is None:
        journal.bind(found or ledger.create())
    elif found != bound:
        there = "there is none" if found is None else f"ledger {found} is"
        raise ConfigError(
            f"The journal of {journal.source} belongs to ledger {bound}, but {there} at "
            f"{ledger.root}: set ledger.root to where the old one is, or, if it is gone for good, "
            "free the journal from it with the command `setup --rebind`"
        )
    ledger.check_writable()


def _settle(spark: SparkSession, journal: Journal, ledger: Ledger, sweep_id: UUID) -> SweepSummary:
    journal.seal(sweep_id)
    summary, retries_changed = journal.summary(sweep_id)
    exhausted = journal.exhausted(sweep_id)
    rows = JournalRows(spark, journal, sweep_id)
    append = partial(ledger.append, sweep_id=sweep_id)
    # A commit is a second of mostly waiting, so the few rows of `sweeps` are written beside the
    # others; the order of the appends means nothing.
    with ThreadPoolExecutor(max_workers=1) as beside:
        appended = beside.submit(append, "sweeps", sweeps_df(spark, summary))
        piece = 0
        for piece, dispatched_df in enumerate(rows.dispatched_dfs(), start=1):
            append("tombstones", dispatched_df, version=piece)
        if exhausted.rows:
            append("tombstones", rows.exhausted_df(exhausted), version=piece + 1)
            append("errors", rows.errors_df(exhausted))
        if retries_changed:
            ledger.replace_source("retries", rows.retries_df(), journal.source, sweep_id=sweep_id)
        appended.result()
    journal.delete_settled(sweep_id)
    return summary


def _check_age(sweep: UnsettledSweep) -> None:
    oldest = datetime.now(UTC) - timedelta(days=TRANSACTION_RETENTION_DAYS)
    if sweep.sealed_at is not None and sweep.sealed_at < oldest:
        raise LedgerError(
            f"Sweep {sweep.sweep_id} was sealed on {sweep.sealed_at:%Y-%m-%d}, longer ago than "
            f"the ledger remembers its transactions ({TRANSACTION_RETENTION_DAYS} days), so "
            "settling it could double its rows: compare the ledger's tables with the journal "
            "for its sweep_id, and delete the sweep's rows from the journal"
        )
