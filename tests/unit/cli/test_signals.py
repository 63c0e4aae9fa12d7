"""What Ctrl-C and SIGTERM do; the errors of a JVM or a driver that they end do not hide them."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest
from py4j.protocol import Py4JNetworkError

from duesweep.cli.signals import TerminatedError, raise_on_signals, stop_on_signals
from duesweep.core.address import TableName
from duesweep.core.errors import SparkError, raise_interruption
from duesweep.drivers.postgresql.errors import destination_errors, map_errors
from duesweep.drivers.spark import map_spark_errors
from duesweep.sweep.stop import Stop

_SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: TerminatedError}
_both = pytest.mark.parametrize("number", _SIGNALS)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The clock, which stands still; both signals as a command has them."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # Otherwise it ends the tests.
    hangup = signal.signal(signal.SIGHUP, lambda *_: None)
    with raise_on_signals():
        yield now
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, hangup)


@pytest.mark.parametrize("number", [*_SIGNALS, signal.SIGHUP])
@pytest.mark.usefixtures("now")
def test_first_signal_asks_for_a_stop_says_so_and_raises_nothing(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    stop, before = Stop(), signal.getsignal(number)

    with stop_on_signals(stop):
        signal.raise_signal(number)

    assert stop.is_wanted
    (said,) = capfd.readouterr().err.splitlines()
    assert "stopping after the current batches" in said
    assert signal.getsignal(number) == before


@_both
@pytest.mark.parametrize("first", _SIGNALS)
def test_second_signal_does_what_it_did_before(
    first: signal.Signals, number: signal.Signals, now: list[float]
) -> None:
    stop = Stop()

    with stop_on_signals(stop):
        signal.raise_signal(first)
        # Twice at once counts as one.
        now[0] += 0.01
        signal.raise_signal(first)
        now[0] += 1
        with pytest.raises(_SIGNALS[number]):
            signal.raise_signal(number)

    assert stop.is_wanted


@pytest.mark.usefixtures("now")
def test_signal_that_the_process_ignores_stays_ignored() -> None:
    stop, before = Stop(), signal.signal(signal.SIGINT, signal.SIG_IGN)

    with stop_on_signals(stop):
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, before)
    assert not stop.is_wanted


def _leave(signalled: BaseException, hiding: Exception) -> None:
    try:
        raise signalled
    finally:
        raise hiding


_NO_JVM = Py4JNetworkError("Answer from Java side is empty")
_BUSY = psycopg.ProgrammingError("cannot exit pipeline mode while busy")
_EDGES: list[tuple[Callable[[], AbstractContextManager[None]], Exception]] = [
    (map_spark_errors, _NO_JVM),
    (map_errors, _BUSY),
    (lambda: destination_errors(TableName("public", "Billing")), _BUSY),
]


@pytest.mark.parametrize(("edge", "hiding"), _EDGES, ids=["JVM", "statement", "queue table"])
@pytest.mark.parametrize("signalled", [KeyboardInterrupt(), TerminatedError()])
def test_signal_is_raised_although_it_has_ended_a_jvm_or_a_statement(
    edge: Callable[[], AbstractContextManager[None]], hiding: Exception, signalled: BaseException
) -> None:
    with pytest.raises(type(signalled)), edge():
        _leave(signalled, hiding)


def test_signal_is_found_behind_the_errors_that_were_made_of_it() -> None:
    lost, made = Py4JNetworkError(), SparkError("Spark failed", transient=True)
    lost.__context__, made.__cause__ = KeyboardInterrupt(), lost

    with pytest.raises(KeyboardInterrupt):
        raise_interruption(made)


def test_error_of_its_own_is_no_signal() -> None:
    with pytest.raises(SparkError), map_spark_errors():
        raise _NO_JVM


@_both
@pytest.mark.usefixtures("now")
def test_signal_whose_exception_is_lost_is_raised_again_and_not_shown(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    class Extension:
        def __del__(self) -> None:
            # Python can raise nothing from here, as C extensions cannot from some places.
            signal.raise_signal(number)

    def lose_it_and_wait() -> None:
        Extension()
        threading.Event().wait(10)

    with pytest.raises(_SIGNALS[number]):
        lose_it_and_wait()

    assert capfd.readouterr().err == ""
