"""Journal to ledger: each sweep's outcomes, once, whatever dies in between.

A sweep is settled as a whole, once it is closed and no batch can commit to it any more. Every
append to the ledger carries the sweep's id as its transaction, and Delta takes each once per table.
So a settle that died is done again from the start, by anybody, and so is a restored journal's.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

from pyspark.sql import SparkSession

from duesweep.errors import ConfigError, LedgerError, raise_interruption
from duesweep.ledger.journal_rows import JournalRows, sweeps_df
from duesweep.ledger.tables import TRANSACTION_RETENTION_DAYS, Ledger
from duesweep.spark_errors import SPARK_ERRORS, is_transient, sentence
from duesweep.stores.journal import Journal, SweepReport, SweepSummary, UnsettledSweep

# What a journal may hold while the ledger cannot be written: about 250 MB for a million messages
# that were dispatched, and the whole of those that were given up.
MOST_UNSETTLED_MESSAGES = 5_000_000
MOST_UNSETTLED_BYTES = 2_000_000_000
# Whoever settles holds a lock for each, and settling one takes a second or two.
MOST_UNSETTLED_SWEEPS = 1_000


def settle_first(spark: SparkSession, journal: Journal, ledger: Ledger) -> LedgerError | None:
    """Settle what dead sweeps left, before anything is dispatched. Where the ledger cannot be
    written, its error: the journal keeps the account meanwhile.

    Raises that error where the journal holds too much already, or belongs to no ledger yet.
    """
    try:
        settle_leftovers(spark, journal, ledger)
    except LedgerError as error:
        if journal.binding() is None:
            raise
        _check_backlog(journal, error)
        return error
    return None


def settle_last(
    spark: SparkSession,
    journal: Journal,
    ledger: Ledger,
    sweep_id: UUID,
    earlier: LedgerError | None = None,
) -> SweepReport:
    """Settle a sweep that its own driver has closed and, where that could not be done `earlier`,
    what others left; where the ledger cannot be written, or is not there any more, the report says
    why.
    """
    summary = ledger_error = None
    try:
        # Again, since an append would begin anew what has gone away since the sweep began.
        check_binding(journal, ledger)
        summary = settle_sweep(spark, journal, ledger, sweep_id)
        if earlier is not None:
            settle_leftovers(spark, journal, ledger)
    except (LedgerError, ConfigError) as error:
        ledger_error = str(error)
    known = summary or journal.summary(sweep_id)[0]
    # As it is: `asdict` would take the reasons of failures apart.
    values = {field.name: getattr(known, field.name) for field in fields(known)}
    return SweepReport(**values, ledger_error=ledger_error)


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
    is_new = journal.binding() is None and _bind(journal, ledger)
    # Read back, whoever bound it: of several first sweeps one has won.
    bound = journal.binding()
    identity = ledger.read()
    if bound is None or identity.ledger_id != bound:
        found = identity.ledger_id
        there = "there is none" if found is None else f"ledger {found} is"
        stray = "; that one is new, empty and nobody's: remove it" if is_new else ""
        identity.refuse_stray()
        raise ConfigError(
            f"The journal of {journal.source} belongs to ledger {bound}, but {there} at "
            f"{ledger.root}",
            advice=(
                "set ledger.root to where the old one is, or, if it is gone for good, free "
                f"the journal from it with the command `setup --rebind`{stray}"
            ),
        )
    identity.refuse_incomplete(ledger.root)
    if identity.unmarked:
        with journal.settling():
            ledger.mark(identity)
    ledger.check_writable()


def _bind(journal: Journal, ledger: Ledger) -> bool:
    """Bind the journal to the ledger at the root; whether this created one.

    Under the source's settle lock, so that of several first sweeps one alone creates a ledger. Who
    dies before the journal is bound leaves a ledger that the next first sweep there takes.
    """
    with journal.settling():
        if journal.binding() is not None:
            return False
        is_new = ledger.read().ledger_id is None
        journal.bind(ledger.create())
        return is_new


def _check_backlog(journal: Journal, error: LedgerError) -> None:
    held = journal.unsettled()
    if (
        held.rows >= MOST_UNSETTLED_MESSAGES
        or held.bytes >= MOST_UNSETTLED_BYTES
        or held.sweeps >= MOST_UNSETTLED_SWEEPS
    ):
        raise LedgerError(
            f"{error}. Nothing more is dispatched until it can be written, since the journal of "
            f"{journal.source} holds {held.rows:,} messages ({held.bytes / 1e9:.1f} GB) of "
            f"{held.sweeps:,} sweeps for it",
            transient=True,
        ) from error


@contextmanager
def _spark_errors_as_the_ledgers(sweep_id: UUID) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        raise_interruption(error)
        raise LedgerError(
            f"Sweep {sweep_id} could not be brought to the ledger: {sentence(error)}; the journal "
            "keeps it, and the next sweep tries again",
            transient=is_transient(error),
        ) from error


def _settle(spark: SparkSession, journal: Journal, ledger: Ledger, sweep_id: UUID) -> SweepSummary:
    journal.seal(sweep_id)
    summary, retries_changed = journal.summary(sweep_id)
    exhausted = journal.exhausted(sweep_id)
    rows = JournalRows(spark, journal, sweep_id)
    append = partial(ledger.append, sweep_id=sweep_id)
    # A commit is a second of mostly waiting, so the few rows of `sweeps` are written beside the
    # others; the order of the appends means nothing.
    with _spark_errors_as_the_ledgers(sweep_id), ThreadPoolExecutor(max_workers=1) as beside:
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
            f"Sweep {sweep.sweep_id} was sealed on {sweep.sealed_at:%Y-%m-%d}, longer ago than the "
            f"ledger remembers its transactions ({TRANSACTION_RETENTION_DAYS} days), so settling "
            "it could double its rows",
            advice=(
                "compare the ledger's tables with the journal for its sweep_id, and delete "
                "the sweep's rows from the journal"
            ),
            transient=False,
        )
