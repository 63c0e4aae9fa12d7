"""Settles the sweeps of a watcher while it delivers, so that no message waits for the ledger."""

import threading
from datetime import UTC, datetime
from math import inf

from duesweep.core import logs
from duesweep.core.errors import ConfigError, DuesweepError, LedgerError
from duesweep.core.world import LEDGER, NO_PATIENCE, STORAGE, Patience
from duesweep.ledger.ledger import Ledger
from duesweep.stores.base import DriverSession
from duesweep.stores.binding import JournalAge
from duesweep.sweep.job import SweepContext
from duesweep.sweep.settle import BRIEFLY_SECONDS, check_backlog, settle_dead, settle_first
from duesweep.sweep.stop import Stop

UNANSWERED = "The ledger's storage, or the journal that is read for it, has not answered yet"
# How long it waits for another settler; and after each pass, so that sweeps are settled together.
_PATIENCE_SECONDS, _REST_SECONDS = 1.0, 1.0
# How long a process that ends waits for it.
_END_SECONDS = 5.0
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Settler:
    """Settles sweeps of one source in a thread with sessions of its own. They are closed and
    released, so any process may settle them.

    `error` is why the ledger has not got all that was closed before the last pass; None: it has.
    """

    def __init__(self, context: SweepContext, stop: Stop) -> None:
        self._context, self._stop = context, stop
        self.error: LedgerError | ConfigError | None = None
        self._ledger: Ledger | None = None
        self._ended_at: float | None = None
        # How far the journal was when that was seen last.
        self._age: JournalAge | None = None
        self._wanted, self._is_over = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def before(self, session: DriverSession, ledger: Ledger) -> LedgerError | None:
        """Before a sweep: what `settle_first` returns and raises, by the last pass. Settles here
        the first time, as the journal may belong to no ledger yet, and if the database may be an
        older copy.
        """
        self._ledger = ledger
        # In this order: the thread may settle in between.
        seen, age = self._age, session.binding.read().age
        if self._thread is None or _is_put_back(seen, age):
            with self._stop.waits.waiting(STORAGE, UNANSWERED):
                self._end_pass(settle_first(session, ledger, NO_PATIENCE))
            age = session.binding.read().age
        self._age = age
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="duesweep settler", daemon=True)
            self._thread.start()
        # The part of a backlog before this one has ended, and a person may have corrected an error.
        self.wake()
        error = self.error
        if isinstance(error, ConfigError):
            raise error
        is_silent = any(each.what == STORAGE for each in self._stop.waits.long())
        if error is not None or is_silent:
            check_backlog(session.journal, error or LedgerError(UNANSWERED, transient=True))
        return error

    def wake(self) -> None:
        """Settle soon."""
        self._wanted.set()

    def close(self) -> None:
        """Settle what there is, and end."""
        self._ended_at = self._context.world.clock.seconds()
        self._is_over.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether it settles by itself."""
        return self._thread is not None

    @property
    def is_alone(self) -> bool:
        """Whether no message waits for it, and it has had its time to end."""
        ended_at = self._ended_at
        seconds = self._context.world.clock.seconds()
        is_late = ended_at is not None and seconds - ended_at > _END_SECONDS
        return self._thread is None or is_late

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._wanted.wait()
            self._wanted.clear()
            if not self._settle():
                self._wanted.set()
            self._is_over.wait(_REST_SECONDS)
        self._settle()

    def _settle(self) -> bool:
        """Settle all that is closed or dead. Returns whether nothing of that is left."""
        is_last = self._is_over.is_set()
        patience = Patience(_PATIENCE_SECONDS, lambda: self._is_over.is_set() and not is_last)
        assert self._ledger is not None  # a sweep was before
        try:
            with self._context.store.open_driver() as session:
                with self._stop.waits.waiting(STORAGE, UNANSWERED):
                    seconds = BRIEFLY_SECONDS if is_last else inf
                    settle_dead(session, self._ledger, patience, seconds)
                self._age = session.binding.read().age
                is_done = not any(one.is_closed for one in session.journal.unsettled())
            self._end_pass(None)
            return is_done
        except (LedgerError, ConfigError) as error:
            self._end_pass(error)
        except DuesweepError as error:
            self._end_pass(LedgerError(f"The journal cannot be settled: {error}", transient=True))
        except Exception as error:  # noqa: BLE001 - of whatever kind: the watcher tells it
            if not threading.main_thread().is_alive():
                # The process did not wait for a ledger that takes long. Its next settler continues.
                return True
            logs.exception("settle_failed", source=self._context.store.source)
            self._end_pass(LedgerError(f"An unexpected error: {error}", transient=True))
        return False

    def _end_pass(self, error: LedgerError | ConfigError | None) -> None:
        """Tell a watcher since when rows have been waiting for the ledger."""
        self.error = error
        if error is None:
            self._stop.waits.end(LEDGER)
        else:
            self._stop.waits.begin(LEDGER, str(error))


def _is_put_back(seen: JournalAge | None, age: JournalAge | None) -> bool:
    """Whether a journal is not as far as it was: an older copy of the database, perhaps."""
    if seen is None or age is None:
        return seen is not age
    if age.journal_id != seen.journal_id:
        return True
    return seen.settled_at is not None and (age.settled_at or _BEGINNING) < seen.settled_at
