"""Compares store, journal and ledger of a source, also while sweeps run.

What is read at one moment can differ from what is read at the next, so a difference is only a
suspicion. Whatever is suspected is looked at again, in an order in which nothing healthy differs:
work that the journal still has is left out before the ledger is read again; a message that the
ledger knows as gone is looked for in the store after that. What still differs is a finding.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from duesweep.audit.ledger_account import LedgerAccount, LedgerCount, Tombstone
from duesweep.core.audit import AuditCheck, Suspect, judge_journal, judge_sweeps
from duesweep.core.change import WaitingMessage
from duesweep.core.errors import ConfigError
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import OperatorDriver

_KEYS_AT_ONCE = 200_000
_MOST_COUNTERS = 10_000


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What is not true, and how much was looked at. `unsettled`: sweeps and commands that the
    journal still has; the ledger's rows of them were not judged.
    """

    source: str
    suspects: Sequence[Suspect]
    sweeps: int
    tombstones: int
    stored: int
    unsettled: int


def audit(session: OperatorDriver, ledger: Ledger) -> AuditReport:
    """Audit a source. Changes and locks nothing. Raises `ConfigError` where the journal belongs to
    another ledger, or to none.
    """
    _check_binding(session, ledger)
    account = LedgerAccount(ledger, session.source)
    counted = account.count()
    suspects = [*_sweeps(session, account, counted), *account.twice()]
    stored = 0
    with session.keys() as pages:
        for keys in _in_portions(pages, _KEYS_AT_ONCE):
            stored += len(keys)
            suspects += _stored_and_gone(session, account.final_tombstones(keys))
    return AuditReport(
        source=session.source,
        suspects=[*suspects, *_counters(session), *_journal(session, counted)],
        sweeps=counted.rows,
        tombstones=counted.tombstones,
        stored=stored,
        unsettled=len(session.unsettled()),
    )


def _check_binding(session: OperatorDriver, ledger: Ledger) -> None:
    bound, identity = session.binding(), ledger.read()
    if identity.ledger_id is None or identity.ledger_id != bound:
        found = identity.ledger_id
        there = "there is none" if found is None else f"ledger {found} is"
        belongs = "no ledger yet" if bound is None else f"ledger {bound}"
        raise ConfigError(
            f"The journal of {session.source} belongs to {belongs}, but {there} at {ledger.root}",
            advice="check ledger.root; the first sweep creates the ledger",
        )
    identity.refuse_incomplete(ledger.root)


def _sweeps(
    session: OperatorDriver, account: LedgerAccount, counted: LedgerCount
) -> Iterator[Suspect]:
    """Sweeps and commands whose rows do not agree, and that are settled."""
    suspected = {one.about for one in judge_sweeps(counted.sweeps)}
    # What was in the ledger and is not in the journal now is settled: the ledger has all of it.
    suspected -= {str(one.sweep_id) for one in session.unsettled()}
    if suspected:
        yield from judge_sweeps(account.count(suspected).sweeps)


def _stored_and_gone(session: OperatorDriver, tombstones: Iterable[Tombstone]) -> Iterator[Suspect]:
    """Messages that have a tombstone, and are still stored after that was read."""
    gone: dict[str, list[Tombstone]] = {}
    for one in tombstones:
        gone.setdefault(one.key, []).append(one)
    # A custom store may take its time to find a message, and here there should be none.
    for waiting in session.find(list(gone)) if gone else ():
        of_it = gone.get(waiting.message.key, ())
        tombstone = next((one for one in of_it if _is_same(one, waiting)), None)
        if tombstone is not None:
            found = f"it is stored, and tombstones has it as {tombstone.outcome}"
            yield Suspect(AuditCheck.STORED_AND_GONE, tombstone.key, found)


def _is_same(tombstone: Tombstone, waiting: WaitingMessage) -> bool:
    """Where its id is its key, a message that its endpoint delays again has the same key."""
    return tombstone.key != tombstone.message_id or tombstone.due == waiting.due


def _counters(session: OperatorDriver) -> Iterator[Suspect]:
    """Retry counters of messages that are not stored, at two looks."""
    gone = session.gone_counters(_MOST_COUNTERS)
    still_gone = set(session.gone_counters(_MOST_COUNTERS)) if gone else set()
    for key in gone:
        if key in still_gone:
            found = "it has a retry counter, and is not stored"
            yield Suspect(AuditCheck.COUNTER_LEFT, key, found)


def _journal(session: OperatorDriver, counted: LedgerCount) -> Iterator[Suspect]:
    """Work that nobody settled, at two looks: a driver may have ended between its row and lock."""
    work = (
        (str(one.sweep_id), one.started_at, session.still_alive(one.sweep_id))
        for one in session.unsettled()
    )
    old = list(judge_journal(work, counted.last_start))
    orphaned = session.orphaned_journal()
    left = {str(one.sweep_id) for one in session.unsettled()} if old else set()
    yield from (one for one in old if one.about in left)
    still_orphaned: set[UUID] = set(session.orphaned_journal()) if orphaned else set()
    for sweep_id in orphaned:
        if sweep_id in still_orphaned:
            found = "the journal has rows of it, and no row in its table of sweeps"
            yield Suspect(AuditCheck.JOURNAL_ORPHANED, str(sweep_id), found)


def _in_portions(pages: Iterable[Sequence[str]], size: int) -> Iterator[list[str]]:
    portion: list[str] = []
    for page in pages:
        portion += page
        if len(portion) >= size:
            yield portion
            portion = []
    if portion:
        yield portion
