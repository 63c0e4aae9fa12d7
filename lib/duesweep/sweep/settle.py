"""Brings each sweep's outcomes from the journal to the ledger, once, whatever dies in between.

A sweep is settled as a whole, after it is closed and no batch can commit to it any more. Every
append to the ledger has the sweep's id as its transaction, and Delta takes each id once per table.
So any process can repeat a settle that died, and settle a journal that was restored from a backup.
An operator's command is settled in the same way.

A source has one settler at a time, and a local ledger one writer. The holder of these locks may be
frozen, so no wait for them is long, and dispatch does without: the journal keeps the record. A
power failure may tear commits of a local ledger: they are dropped before all else (`check_ledger`),
and written again from the journal.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from datetime import datetime, timedelta
from math import inf
from uuid import UUID

from duesweep.core import logs
from duesweep.core.account import (
    UNREADABLE,
    BreakerState,
    SweepReport,
    SweepSummary,
    SweepTally,
    add_reports,
    only_outcomes,
)
from duesweep.core.errors import (
    ConfigError,
    LedgerError,
    StoreError,
    SweepClosedError,
    may_pass,
)
from duesweep.core.world import NO_PATIENCE, Patience
from duesweep.ledger.base import Among, Asked, Between
from duesweep.ledger.durable import make_durable
from duesweep.ledger.ledger import TRANSACTION_RETENTION_DAYS, Ledger, pieces_of
from duesweep.stores.base import DriverSession
from duesweep.stores.journal import Journal, Unsettled
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.destinations import CircuitBreaker
from duesweep.sweep.job import SweepContext
from duesweep.sweep.pairing import check_binding, check_ledger, settling
from duesweep.sweep.stop import Stop

# The most that a journal may hold while the ledger cannot be written. A million dispatched messages
# take about 250 MB; exhausted messages are stored whole.
MOST_UNSETTLED_MESSAGES = 5_000_000
MOST_UNSETTLED_BYTES = 2_000_000_000
# Due messages wait while dead sweeps are settled, so a long list of dead sweeps is settled step by
# step.
BRIEFLY_SECONDS = 1.0


def settle_first(
    session: DriverSession, ledger: Ledger, patience: Patience, seconds: float = BRIEFLY_SECONDS
) -> LedgerError | None:
    """Settle what dead sweeps left, before anything is dispatched; begin none after `seconds`.

    Returns the error where the ledger cannot be written; the journal keeps the rows until it can.
    Raises that error where the journal holds too much already, or belongs to no ledger yet.
    """
    try:
        settle_dead(session, ledger, patience, seconds)
        return None
    except LedgerError as error:
        found = error
    except StoreError as error:
        if not may_pass(error):
            raise
        # A settler that is frozen holds rows of its transaction.
        found = LedgerError(f"The journal cannot be settled: {error}", transient=True)
    if session.binding.read().ledger is None:
        raise found
    check_backlog(session.journal, found)
    return found


def settle_last(
    session: DriverSession,
    ledger: Ledger,
    sweep_id: UUID,
    patience: Patience,
    *,
    tally: SweepTally,
    seconds: float = inf,
) -> SweepReport:
    """Settle what dead sweeps left, none of which begins after `seconds`, and then a sweep that its
    own driver has closed. If the ledger cannot be written, or is gone, the report says why. The
    `tally` is new.
    """
    summary = ledger_error = None
    try:
        # Check again: if a table was lost since the sweep began, an append would create it again.
        check_ledger(session, ledger, patience)
        with settling(session.journal, patience):
            error = _settle_dead_first(session, ledger, patience, seconds, own=sweep_id)
            summary = _settle(session, ledger, sweep_id, patience, tally=tally)
            if error is not None:
                raise error
    except (LedgerError, ConfigError) as error:
        ledger_error = str(error)
    if summary is None:
        again = SweepTally(tally.objective_ms)
        return replace(count_sweep(session.journal, sweep_id, again), ledger_error=ledger_error)
    return _report(summary, ledger_error, tally)


def drop_empty(
    journal: Journal, sweep_id: UUID, ledger_error: LedgerError | None
) -> SweepReport | None:
    """The report of a closed sweep that moved nothing, which is forgotten, so that an outage does
    not fill the ledger with such sweeps. None: it moved something, so the ledger has to get it.
    `ledger_error`: why the ledger has not got earlier sweeps.
    """
    summary, retries_changed = journal.summary(sweep_id)
    if summary.claimed or retries_changed:
        return None
    journal.delete_settled(sweep_id, is_in_ledger=False)
    return replace(_report(summary, str(ledger_error) if ledger_error else None), sweep_ids=())


def count_sweep(journal: Journal, sweep_id: UUID, tally: SweepTally) -> SweepReport:
    """The report of a closed sweep in the journal. The `tally` is new. Raises `SweepClosedError` if
    the sweep is not there.
    """
    summary, retries_changed = journal.summary(sweep_id)
    exhausted = journal.pieces(sweep_id, command=False)
    for _ in pieces_of(journal, summary, exhausted, retries_changed=retries_changed, tally=tally):
        pass
    return _report(summary, tally=tally)


def late_report(
    journal: Journal, ledger: Ledger, sweep_id: UUID, tally: SweepTally
) -> SweepReport | None:
    """The report of a sweep that another process closed: by the journal, or by the ledger if it is
    settled. None: neither has it.
    """
    with suppress(SweepClosedError):
        return count_sweep(journal, sweep_id, tally)
    from duesweep.ledger.rows import SWEEPS  # noqa: PLC0415 - loads pyarrow

    of_sweep = Among("sweep_id", (str(sweep_id),))
    for row in ledger.rows("sweeps", SWEEPS.names, of_sweep):
        summary = SweepSummary(**row)
        failed = Between("last_failed_at", summary.start, summary.end + timedelta.resolution)
        of_source = Among("source", (summary.source,))
        tables: Asked = {"tombstones": [of_sweep], "retries": [of_source, failed]}
        for each in ledger.ask("count_by_destination", tables):
            name = each["destination"] or UNREADABLE
            tally.by_destination[name, each["outcome"]] += each["messages"]
        # It does not say which message failed before.
        most_ms = tally.objective_ms
        tally.is_late = most_ms is not None and (summary.lateness_max_ms or 0) > most_ms
        return _report(summary, tally=tally)
    return None


def with_unreported(
    report: SweepReport,
    session: DriverSession,
    ledger: Ledger,
    *,
    context: SweepContext,
    stop: Stop,
) -> SweepReport:
    """The report, with the outcomes of messages in earlier sweeps of this process that failed
    before they had a report (`stop.unreported`).
    """
    own = stop.unreported_of(session.source)
    still_open = (
        {one.sweep_id for one in session.journal.unsettled() if not one.is_closed} if own else ()
    )
    for sweep_id in own:
        if sweep_id in still_open:
            continue
        try:
            found = late_report(session.journal, ledger, sweep_id, context.new_tally())
        except LedgerError:
            continue
        stop.unreported.discard((session.source, sweep_id))
        if found is not None:
            report = add_reports(only_outcomes(found), report)
    return report


def _report(
    known: SweepSummary, ledger_error: str | None = None, tally: SweepTally | None = None
) -> SweepReport:
    # Not `asdict`: it would turn the reasons of failures into dicts.
    values = {field.name: getattr(known, field.name) for field in fields(known)}
    report = SweepReport(**values, ledger_error=ledger_error, sweep_ids=(known.sweep_id,))
    if tally is None:
        return report
    return replace(report, by_destination=tally.by_destination, is_late=tally.is_late)


def settle_dead(
    session: DriverSession, ledger: Ledger, patience: Patience = NO_PATIENCE, seconds: float = inf
) -> None:
    """Settle dead sweeps and commands; begin none after `seconds`, or after a stop. Ones
    that are still open are closed as `abandoned`.
    """
    check_binding(session, ledger, patience)
    if any(not one.is_alive for one in session.journal.unsettled()):
        with settling(session.journal, patience):
            _settle_each_dead(session, ledger, patience, seconds)


def _settle_each_dead(
    session: DriverSession,
    ledger: Ledger,
    patience: Patience,
    seconds: float,
    *,
    own: UUID | None = None,
) -> None:
    """Ask for unsettled sweeps once the settler's lease is held: another process may have settled
    some while this one waited for it.
    """
    end = patience.clock.seconds() + seconds
    for sweep in session.journal.unsettled():
        if sweep.sweep_id == own or not session.journal.adopt(sweep.sweep_id):
            continue
        if not sweep.is_closed and not session.sweeps.close(
            sweep.sweep_id, abandoned=True, remaining=0, waits=False
        ):
            # A task of it is frozen in a batch. It has to end first, and this process does not wait
            # for that.
            continue
        _check_age(sweep, patience.clock.now())
        # Unless another settler has, which took the lease while this one was frozen.
        with suppress(SweepClosedError):
            _settle_any(session, ledger, sweep.sweep_id, patience)
        if patience.clock.seconds() >= end or patience.is_stopped():
            return


def _settle_dead_first(
    session: DriverSession, ledger: Ledger, patience: Patience, seconds: float, *, own: UUID
) -> LedgerError | StoreError | None:
    """Settle what dead sweeps left, before one's own. A settler that was frozen may still write the
    retry counters that it read before: the ledger must have got them for its sweep by then, and so
    refuse them. Returns why one could not be settled: one's own is none the worse.
    """
    try:
        _settle_each_dead(session, ledger, patience, seconds, own=own)
    except (LedgerError, StoreError) as error:
        return error
    return None


def check_backlog(journal: Journal, error: LedgerError) -> None:
    """Raise the error if the journal holds as much as it may while the ledger is not written."""
    held = journal.backlog()
    if held.rows >= MOST_UNSETTLED_MESSAGES or held.bytes >= MOST_UNSETTLED_BYTES:
        raise LedgerError(
            f"{error}. The journal of {journal.source} is full: it holds {held.rows:,} messages "
            f"({held.bytes / 1e9:.1f} GB) of {held.sweeps:,} sweeps that are not in the ledger. "
            "Nothing more is dispatched until the ledger can be written",
            transient=True,
        ) from error


def settle_one(session: DriverSession, ledger: Ledger, sweep_id: UUID, patience: Patience) -> None:
    """Settle a sweep or a command that its own driver has closed."""
    check_binding(session, ledger, patience)
    with settling(session.journal, patience):
        _settle_dead_first(session, ledger, patience, BRIEFLY_SECONDS, own=sweep_id)
        _settle_any(session, ledger, sweep_id, patience)


def _settle_any(session: DriverSession, ledger: Ledger, sweep_id: UUID, patience: Patience) -> None:
    """Settle a sweep or a command."""
    command = session.journal.command(sweep_id)
    if command is not None:
        session.journal.seal(sweep_id)
        ledger.write_command(session.journal, sweep_id, command, patience)
        _forget(session, ledger, sweep_id)
        return
    _settle(session, ledger, sweep_id, patience)


def _settle(
    session: DriverSession,
    ledger: Ledger,
    sweep_id: UUID,
    patience: Patience,
    *,
    tally: SweepTally | None = None,
) -> SweepSummary:
    session.journal.seal(sweep_id)
    summary, retries_changed = session.journal.summary(sweep_id)
    exhausted = session.journal.pieces(sweep_id, command=False)
    ledger.write_sweep(
        session.journal, summary, exhausted, patience, retries_changed=retries_changed, tally=tally
    )
    _forget(session, ledger, sweep_id)
    return summary


def _forget(session: DriverSession, ledger: Ledger, sweep_id: UUID) -> None:
    """Delete rows from the journal once the ledger has them on its disk. Raises if another ledger
    took the place of the journal's while it was written: that one may have got rows which the
    journal's ledger lacks.
    """
    found = ledger.read().ledger_id
    bound = session.binding.read().ledger
    if found != bound:
        raise LedgerError(
            f"Ledger {bound} at {ledger.root} was replaced by {found} while sweep "
            f"{sweep_id} was written; the journal keeps its rows",
            advice="put the ledger back, and the next sweep writes the missing rows",
            transient=True,
        )
    make_durable(ledger.root)
    session.journal.delete_settled(sweep_id)


def _check_age(sweep: Unsettled, now: datetime) -> None:
    oldest = now - timedelta(days=TRANSACTION_RETENTION_DAYS)
    if sweep.sealed_at is not None and sweep.sealed_at < oldest:
        raise LedgerError(
            f"Sweep {sweep.sweep_id} was sealed on {sweep.sealed_at:%Y-%m-%d}. The ledger "
            f"remembers its transactions for {TRANSACTION_RETENTION_DAYS} days only, so settling "
            "the sweep now could double its rows",
            advice=(
                "compare the ledger's tables with the journal for its sweep_id, and delete "
                "the sweep's rows from the journal"
            ),
            transient=False,
        )


@contextmanager
def living_session(
    context: SweepContext, session: DriverSession, run: SweepRun, *, stop: Stop
) -> Iterator[DriverSession]:
    """The driver's session, or if that was lost, a new one to close and settle the sweep, unless
    another process has closed it by then.

    Raises `StoreError` if the store cannot be reached for `breaker.trigger_seconds`, or when `stop`
    is wanted.
    """
    try:
        session.sweeps.progress(run.sweep_id)
    except StoreError as error:
        if not may_pass(error):
            raise
        loss = error
    else:
        yield session
        return
    logs.warning("driver_session_lost", sweep_id=str(run.sweep_id), error=str(loss))
    with _open_again(context, loss, stop=stop) as living:
        yield living


def _open_again(context: SweepContext, loss: StoreError, *, stop: Stop) -> DriverSession:
    breaker = CircuitBreaker(context.breaker, context.world.clock)
    breaker.fail(str(loss))
    while True:
        try:
            return context.store.open_driver()
        except StoreError as error:
            breaker.fail(str(error), is_lasting=not may_pass(error))
            if breaker.state is BreakerState.TRIGGERED or stop.is_wanted:
                raise
        stop.wait(breaker.seconds_to_try)
