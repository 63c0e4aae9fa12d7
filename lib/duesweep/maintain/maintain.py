"""Settles what was left, removes what is too old, and tidies up the ledger's files.

Sweeps may run meanwhile, with either writer: each step is a transaction of Delta's or of the
store's, and tries again after a conflict. On a local ledger each step waits for the writers' lock,
and writers wait for the step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from duesweep.core.errors import ConfigError
from duesweep.core.policy import cut_before
from duesweep.core.world import Patience
from duesweep.ledger.base import CHANGES, TABLES, Among, TableSize
from duesweep.ledger.ledger import Ledger
from duesweep.maintain.report import MaintainReport, TableReport
from duesweep.stores.base import DroppedSource, OperatorDriver
from duesweep.sweep.settle import settle_leftovers, settle_sweep

# The tables of which retention removes rows, with the instant that counts.
_AGING = {"tombstones": "dispatched_at", "sweeps": "end"}
_MOST_COUNTERS = 1_000_000
# It runs once a day, so it is patient with sweeps that settle much.
_LOCK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How long the ledger keeps rows (None: for ever) and files, in days; and which sources, whose
    endpoints are gone, are to be forgotten.
    """

    keep_days: int | None = None
    vacuum_days: int = 7
    forget: Sequence[str] = ()


def maintain(session: OperatorDriver, ledger: Ledger, rules: Rules) -> MaintainReport:
    """Look after a source. Raises `LedgerError` where the ledger cannot be written, `ConfigError`
    for a source that is not to be forgotten; what was done by then stays done.
    """
    dropped = session.dropped()
    for source in rules.forget:
        _check_dropped(source, dropped)
    settled = _settle(session, ledger)
    counters = _remove_counters(session, ledger)
    cut = _cut(session.source, ledger, rules)
    return MaintainReport(
        source=session.source,
        settled=settled,
        counters=counters,
        kept_from=ledger.kept_from(session.source),
        tables=list(_tables(session.source, ledger, rules, cut=cut)),
        dropped=dropped,
        forgotten=_forget(session, rules),
    )


def _settle(session: OperatorDriver, ledger: Ledger) -> int:
    """How many sweeps and commands of dead drivers were settled."""
    unsettled = [one.sweep_id for one in session.unsettled()]
    left = {sweep_id for sweep_id in unsettled if not session.still_alive(sweep_id)}
    settle_leftovers(session, ledger, Patience(_LOCK_SECONDS))
    return len(left - {one.sweep_id for one in session.unsettled()})


def _remove_counters(session: OperatorDriver, ledger: Ledger) -> int:
    """An empty sweep removes them, and brings the ledger's copy up to date."""
    gone = len(session.gone_counters(_MOST_COUNTERS))
    if gone:
        run = session.open_sweep(session.horizon(), engine="in-process")
        session.close_sweep(run.sweep_id, abandoned=False, remaining=0)
        settle_sweep(session, ledger, run.sweep_id, Patience(_LOCK_SECONDS))
    return gone


def _cut(source: str, ledger: Ledger, rules: Rules) -> datetime | None:
    """Before which rows are to be removed; noted in the ledger."""
    if rules.keep_days is None:
        return None
    rows = ledger.rows("sweeps", ("start", "end"), Among("source", [source]))
    wanted = datetime.now(UTC) - timedelta(days=rules.keep_days)
    cut = cut_before(wanted, ((row["start"], row["end"]) for row in rows))
    with ledger.lock_for_writing(Patience(_LOCK_SECONDS)):
        before = ledger.kept_from(source)
        if before is not None and cut <= before:
            return before
        ledger.keep_from(source, cut)
    return cut


def _tables(
    source: str, ledger: Ledger, rules: Rules, *, cut: datetime | None
) -> Iterator[TableReport]:
    tables = ledger.tables
    for name in (*TABLES, CHANGES):
        before = tables.size(name)
        if before is None:
            continue
        removed = 0
        if cut is not None and name in _AGING:
            with ledger.lock_for_writing(Patience(_LOCK_SECONDS)):
                removed = tables.remove(name, source, _AGING[name], cut)
        with ledger.lock_for_writing(Patience(_LOCK_SECONDS)):
            compacted = tables.compact(name)
        with ledger.lock_for_writing(Patience(_LOCK_SECONDS)):
            vacuumed = tables.vacuum(name, rules.vacuum_days)
        after = tables.size(name) or TableSize()
        yield TableReport(name, before, after, removed, compacted, vacuumed)


def _check_dropped(source: str, dropped: Sequence[DroppedSource]) -> None:
    found = next((one for one in dropped if one.source == source), None)
    if found is None:
        known = ", ".join(one.source for one in dropped) or "none"
        raise ConfigError(
            f"{source} is not a source whose delayed table is gone; these are: {known}",
            advice="drop the table first, or leave out --forget",
        )
    if found.unsettled:
        raise ConfigError(
            f"{source} has {found.unsettled} sweeps or commands that its ledger may lack",
            advice="create its delayed table again, empty, and run `duesweep sweep` for it",
        )


def _forget(upkeep: OperatorDriver, rules: Rules) -> int:
    return sum(upkeep.forget(source) for source in rules.forget)
