"""Goes on with a sweep when its driver's session was lost while its slices were dispatched.

The session's lock shows that the sweep lives, and it is lost with the session. So another process
may have closed the sweep meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from duesweep.core.account import BreakerState
from duesweep.core.errors import StoreError, may_pass
from duesweep.stores.base import DriverSession, Store, SweepRun
from duesweep.sweep.breakers import CircuitBreaker
from duesweep.sweep.job import SweepContext
from duesweep.sweep.stop import Stop

_log = structlog.get_logger(__name__)


@contextmanager
def living_session(
    context: SweepContext, session: DriverSession, run: SweepRun, *, stop: Stop
) -> Iterator[DriverSession]:
    """The driver's session, or a new one that holds the sweep if that session was lost.

    Raises `StoreError` if the store cannot be reached for `breaker.trigger_seconds`, or when `stop`
    is wanted.
    """
    loss = _loss(session, run)
    if loss is None:
        yield session
        return
    _log.warning("driver_session_lost", sweep_id=str(run.sweep_id), error=str(loss))
    with _resume(context, run, loss, stop=stop) as living:
        yield living


def _loss(session: DriverSession, run: SweepRun) -> StoreError | None:
    """Why the session cannot be used any more; None if it can."""
    try:
        session.progress(run.sweep_id)
    except StoreError as error:
        if not may_pass(error):
            raise
        return error
    return None


def _resume(context: SweepContext, run: SweepRun, loss: StoreError, *, stop: Stop) -> DriverSession:
    """A new session, which holds the sweep's lock unless another process does."""
    breaker = CircuitBreaker(context.breaker, context.world.clock)
    breaker.fail(str(loss))
    while True:
        try:
            return _open(context.store, run)
        except StoreError as error:
            breaker.fail(str(error), is_lasting=not may_pass(error))
            if breaker.state is BreakerState.TRIGGERED or stop.is_wanted:
                raise
        stop.wait(breaker.seconds_to_try)


def _open(store: Store, run: SweepRun) -> DriverSession:
    session = store.open_driver()
    try:
        # If another process has it by now, closing the sweep will fail.
        session.keep_sweep(run.sweep_id)
    except BaseException:
        session.__exit__()
        raise
    return session
