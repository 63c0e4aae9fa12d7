"""A journal and its ledger: who may write to it, and whether the two belong together.

A source has one settler at a time. Its journal is bound to one ledger, and each knows the other:
so an older copy of either, or another store of the same name, is refused before anything moves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from uuid import UUID

from duesweep.core.errors import ConfigError, LedgerLockedError, Problem
from duesweep.core.quantities import count_text
from duesweep.core.world import NO_PATIENCE, Patience
from duesweep.ledger.base import check_writable
from duesweep.ledger.ledger import Identity, Ledger
from duesweep.stores.base import DriverSession
from duesweep.stores.binding import Bound, JournalAge, SourceBinding
from duesweep.stores.journal import Journal

# To this precision servers keep the end of a sweep.
_TICK = timedelta(milliseconds=1)


@contextmanager
def settling(journal: Journal, patience: Patience) -> Iterator[None]:
    """Be the source's only settler in the block. Raises `LedgerLockedError` where another process
    is, and patience is at its end.
    """
    while True:
        with journal.settling() as other:
            if other is None:
                yield
                return
        holder = partial("{} is settling {}".format, other, journal.source)
        if not patience.wait(holder):
            raise LedgerLockedError(holder())


def check_binding(session: DriverSession, ledger: Ledger, patience: Patience = NO_PATIENCE) -> None:
    """Raise `ConfigError` unless the journal belongs to this ledger, and neither is an older copy;
    bind the journal where it is new.
    """
    identity, age = check_ledger(session, ledger, patience)
    if age is None:
        return
    _refuse_older_copy(session, ledger, identity, age)
    if session.source not in identity.journals:
        # A ledger that has no id of the source's journal yet takes this one's.
        _name_journal(session.binding, ledger, patience)
    if age.place != ledger.root:
        session.binding.keep_place(ledger.root)


def require_own(
    binding: SourceBinding, ledger: Ledger, identity: Identity | None = None
) -> UUID | None:
    """The ledger that the journal is bound to, for commands that read: nothing is bound. Raises
    `ConfigError` if another ledger is at the root, or none, or one that lacks tables. `identity`:
    the ledger's, if it was read.
    """
    bound, identity = binding.read(), identity or ledger.read()
    if bound.ledger is not None and identity.ledger_id != bound.ledger:
        problem = _other_ledger(binding.source, bound, identity, ledger.root)
        raise ConfigError.of(problem)
    identity.refuse_incomplete(ledger.root)
    return bound.ledger


def check_ledger(
    session: DriverSession, ledger: Ledger, patience: Patience
) -> tuple[Identity, JournalAge | None]:
    """Raise `ConfigError` unless the journal belongs to this ledger and its tables are there; bind
    the journal where it is new. Returns which ledger it is, and how far that was.
    """
    ledger.recover(lambda: {str(one.sweep_id) for one in session.journal.unsettled()}, patience)
    bound, is_new = session.binding.read(), False
    if bound.ledger is None:
        is_new = _bind(session, ledger, patience)
        # Of several first sweeps, another one may have bound the journal.
        bound = session.binding.read()
    identity = ledger.read()
    if bound.ledger is None or identity.ledger_id != bound.ledger:
        stray = "; remove the ledger there: it is new, empty and not in use" if is_new else ""
        identity.refuse_stray()
        problem = _other_ledger(session.source, bound, identity, ledger.root)
        raise ConfigError(problem.text, advice=f"{problem.advice}{stray}")
    identity.refuse_incomplete(ledger.root)
    check_writable(ledger.root)
    return identity, bound.age


def _other_ledger(source: str, bound: Bound, identity: Identity, root: str) -> Problem:
    """That the journal is bound to another ledger than the one at the root."""
    found, ledger_id = identity.ledger_id, bound.ledger
    there = "no ledger is" if found is None else f"ledger {found} is"
    last = bound.age.place if bound.age is not None else None
    was = "" if last in {None, root} else f" which was at {last},"
    return Problem(
        f"The journal of {source} belongs to ledger {ledger_id},{was} but {there} at {root}",
        f"set ledger.root to where ledger {ledger_id} is, or, if that is gone for good, free the "
        "journal from it with the command `setup --rebind`",
    )


def _name_journal(binding: SourceBinding, ledger: Ledger, patience: Patience) -> None:
    """Let journal and ledger know each other."""
    binding.name_journal()
    age = binding.read().age
    if age is not None:
        ledger.keep_journal(binding.source, age.journal_id, patience)


def find_older_copy(session: DriverSession, ledger: Ledger) -> Problem | None:
    """Why journal and ledger do not belong together, if so: one of them is an older copy, or the
    ledger is another store's, another one than the journal's, or gone. Changes nothing.
    """
    age = session.binding.read().age
    return None if age is None else _find_older_copy(session, ledger, ledger.read(), age)


def _refuse_older_copy(
    session: DriverSession, ledger: Ledger, identity: Identity, age: JournalAge
) -> None:
    if problem := _find_older_copy(session, ledger, identity, age):
        raise ConfigError.of(problem)


def _find_older_copy(
    session: DriverSession, ledger: Ledger, identity: Identity, age: JournalAge
) -> Problem | None:
    while problem := _older_copy(session, ledger, identity, age):
        seen, age = age, session.binding.read().age or age
        # While this one looked, another process may have settled.
        if age == seen:
            return problem
    return None


def _older_copy(
    session: DriverSession, ledger: Ledger, identity: Identity, age: JournalAge
) -> Problem | None:
    source, known = session.source, identity.journals.get(session.source)
    if known is not None and known != str(age.journal_id):
        return Problem(
            f"The ledger {identity.ledger_id} at {ledger.root} has the rows of another store, "
            f"which is also named {source}",
            "set another store.name for this one or, if it took the place of that one, run the "
            "command `setup --rebind`",
        )
    if age.settled is None or age.settled_at is None:
        return None
    is_there = ledger.has(age.settled)
    # Retention says so before it removes rows.
    kept_from = None if is_there else ledger.kept_from().get(source)
    if not is_there and (kept_from is None or age.settled_at >= kept_from):
        return Problem(
            f"The ledger {identity.ledger_id} at {ledger.root} is an older copy: it lacks sweep or "
            f"command {age.settled}, which it got from the journal of {source} with the state of "
            f"{age.settled_at:%Y-%m-%d %H:%M:%S} UTC",
            "restore the newer ledger. If it is lost, run the command `setup --rebind`, and know "
            "that errors replayed and messages restored since then look as if they were not",
        )
    written = ledger.since(source, age.settled_at + _TICK)
    # After that: a sweep that another process opens and writes by then is still there, or settled.
    unsettled = {str(one.sweep_id) for one in session.journal.unsettled()}
    newer = [each for each in written if each not in unsettled]
    if not newer:
        return None
    return Problem(
        f"The database of {source} is an older copy: its journal ends at "
        f"{age.settled_at:%Y-%m-%d %H:%M:%S} UTC, and the ledger has "
        f"{count_text(len(newer), 'later sweep or command')}, such as {newer[0]}. Messages that "
        "these delivered may be stored again",
        "run `duesweep audit`, cancel or pause the messages that it names, and then run the "
        "command `setup --rebind`",
    )


def _bind(session: DriverSession, ledger: Ledger, patience: Patience) -> bool:
    """Bind the journal to the ledger at the root. Returns whether this created the ledger.

    Has the settler's lease, so that only one of several first sweeps creates a ledger. If the
    process dies before the journal is bound, the next first sweep uses the ledger that it left.
    """
    with settling(session.journal, patience):
        bound, found = session.binding.read(), ledger.read()
        if bound.ledger is not None:
            return False
        age = bound.age
        is_freed = age is not None and age.is_freed
        if age is not None and not is_freed:
            _refuse_older_copy(session, ledger, found, age)
        session.binding.bind(ledger.create(patience))
        if is_freed:
            # An operator says that this journal takes the place of another.
            _name_journal(session.binding, ledger, patience)
        return found.ledger_id is None
