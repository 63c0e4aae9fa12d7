"""The loop of a watcher, with ticks and a clock of the test's own, and several endpoints side by
side.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from duesweep.core.errors import (
    ConfigError,
    DuesweepError,
    LedgerError,
    QueueError,
    SparkError,
    StoreError,
    TransactionLostError,
)
from duesweep.core.policy import LEAST_WAIT_SECONDS
from duesweep.core.result import exit_code_of
from duesweep.operations.run import Run, side_by_side
from duesweep.operations.watch import watch, watch_all
from duesweep.sweep.stop import Stop
from support.reports import IDLE, LOCKED, MOVED, MOVED_NOTHING, NOTHING, UNREACHED, UNWRITTEN


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how many seconds the watcher wanted to wait, each time; it waits for none."""
    found: list[float] = []
    monkeypatch.setattr(Stop, "wait", lambda _, seconds: found.append(seconds))
    return found


def _run(
    *ticks: Run | DuesweepError, most_seconds: float = 10, is_one_of_several: bool = False
) -> list[Run]:
    """Watch until the ticks are used up; the runs that observers got."""
    stop, told = Stop(), list[Run]()
    left: Iterator[Run | DuesweepError] = iter(ticks)

    def tick() -> Run:
        done = next(left, None)
        if done is None:
            stop.ask()
            return NOTHING
        if isinstance(done, DuesweepError):
            raise done
        return done

    watch(
        "nsb",
        tick,
        stop,
        [told.append],
        most_seconds=most_seconds,
        may_wait=lambda: is_one_of_several,
    )
    return told[:-1]


def test_goes_on_after_a_sweep_and_waits_for_the_next_message_when_nothing_is_due(
    waits: list[float],
) -> None:
    assert _run(MOVED, IDLE, NOTHING) == [MOVED, IDLE, NOTHING]
    assert waits[:3] == [LEAST_WAIT_SECONDS, 0.5, 10]


def test_waits_longer_each_time_that_nothing_moves_although_something_is_due(
    waits: list[float],
) -> None:
    _run(MOVED_NOTHING, MOVED_NOTHING, MOVED_NOTHING, MOVED, MOVED_NOTHING)

    assert waits[:5] == pytest.approx([0.6, 1.2, 2.4, 0.02, 0.6])


def test_messages_that_others_hold_are_tried_again_each_second(waits: list[float]) -> None:
    _run(LOCKED, LOCKED, LOCKED, LOCKED)

    assert waits[:4] == pytest.approx([0.6, 1.0, 1.0, 1.0])


def test_ledger_that_cannot_be_written_delays_no_message(waits: list[float]) -> None:
    out_of_reach = LedgerError("the disk is full", transient=True)

    _run(UNWRITTEN, UNWRITTEN, out_of_reach, out_of_reach, out_of_reach)

    assert waits[:5] == pytest.approx([0.02, 0.02, 0.6, 1.0, 1.0])


@pytest.mark.parametrize("error", [UNREACHED, ConfigError("there is no table")])
def test_error_is_told_and_waited_out(waits: list[float], error: DuesweepError) -> None:
    try:
        told = _run(MOVED, error, error, MOVED)
    except DuesweepError as ended:
        pytest.fail(f"it ended the watcher: {ended}")
    assert (told[0], told[3]) == (MOVED, MOVED)
    for failed in told[1:3]:
        assert (failed.source, failed.outcome, failed.error) == ("nsb", "error", str(error))
        assert failed.exit_code == exit_code_of(error)
    assert waits[:4] == pytest.approx([0.02, 0.6, 1.2, 0.02])


def test_store_that_is_out_of_reach_at_the_start_is_waited_for(waits: list[float]) -> None:
    failed, moved = _run(UNREACHED, MOVED)

    assert (failed.error, moved) == (str(UNREACHED), MOVED)
    assert len(waits) == 3


@pytest.mark.parametrize(
    "run",
    [
        lambda: _run(ConfigError("no such queue")),
        lambda: _run(MOVED, SparkError("the JVM is gone", transient=True)),
    ],
    ids=["wrong setting at the start", "lost session"],
)
@pytest.mark.usefixtures("waits")
def test_what_waiting_does_not_mend_ends_it(run: Callable[[], object]) -> None:
    with pytest.raises((ConfigError, SparkError)):
        run()


def _raising(error: Exception) -> Callable[[], None]:
    def watch() -> None:
        raise error

    return watch


def test_single_one_raises_and_leaves_this_thread_to_signals() -> None:
    threads: list[threading.Thread] = []

    assert watch_all([("nsb", lambda: threads.append(threading.current_thread()))]) == [0]
    assert threading.current_thread() not in threads
    with pytest.raises(ConfigError):
        watch_all([("nsb", _raising(ConfigError("no such queue")))])


def test_one_that_may_be_left_is_not_waited_for_and_the_others_are() -> None:
    silent, done = threading.Event(), threading.Event()
    looks: list[int] = []

    def lasting() -> None:
        assert done.wait(60)

    def look_after() -> None:
        looks.append(1)
        done.set()

    assert watch_all(
        [("one", silent.wait), ("other", lasting)], look_after, lambda number: number == 0
    ) == [0]
    assert (silent.is_set(), done.is_set()) == (False, True)
    silent.set()


def test_one_of_several_waits_until_its_settings_fit_and_is_watched_then(
    waits: list[float],
) -> None:
    wrong = ConfigError("there is no table yet")

    runs = list[Run]()
    with suppress(ConfigError):
        runs = _run(wrong, wrong, MOVED, wrong, MOVED, is_one_of_several=True)

    assert [run.error for run in runs] == [str(wrong), str(wrong), None, str(wrong), None]
    assert waits[1] > waits[0] > LEAST_WAIT_SECONDS


def test_one_of_several_that_was_never_watched_says_so_in_the_end(waits: list[float]) -> None:
    wrong, lost = ConfigError("no such queue"), StoreError("no server answers", transient=True)
    told, stop = list[Run](), Stop()
    left = [wrong, lost]

    def tick() -> Run:
        if len(left) == 1:
            stop.ask()
        raise left.pop(0)

    with pytest.raises(ConfigError, match="no such queue"):
        watch("nsb", tick, stop, [told.append], most_seconds=1, may_wait=lambda: True)
    assert len(told) == len(waits) == 2


def test_error_of_one_of_several_is_told_and_costs_the_others_nothing() -> None:
    lasted = threading.Event()
    failed = threading.Event()

    def lasting() -> None:
        assert failed.wait(60)
        lasted.set()

    def failing() -> None:
        failed.set()
        raise ValueError("a defect")

    with capture_logs() as lines:
        codes = watch_all(
            [
                ("good", lasting),
                ("broken", failing),
                ("wrong", _raising(ConfigError("no such queue"))),
            ]
        )

    assert sorted(codes) == [1, 2]
    assert lasted.is_set()
    told = {line["source"]: line.get("error", "a stack") for line in lines}
    assert told == {"broken": "a stack", "wrong": "no such queue"}


_LOST = StoreError("no server answers", transient=True)


def _failing(error: Exception) -> Callable[[], str]:
    def work() -> str:
        raise error

    return work


def test_rest_of_a_database_that_is_lost_is_not_tried_and_others_are() -> None:
    lost = [("one", _failing(_LOST)) for _ in range(40)]
    others = [("another", lambda: "done") for _ in range(10)]

    results = side_by_side([*lost, *others])

    assert results[40:] == ["done"] * 10
    failures = [each for each in results[:40] if isinstance(each, StoreError)]
    assert len(failures) == 40
    untried = [each for each in failures if "was not tried" in str(each)]
    assert len(untried) >= 30


@pytest.mark.parametrize(
    "error",
    [
        TransactionLostError("a deadlock"),
        QueueError("the broker is away", transient=True),
        StoreError("no right to that table", transient=False),
    ],
    ids=["deadlock", "broker", "rights"],
)
def test_database_that_answers_is_not_given_up(error: Exception) -> None:
    jobs = [("one", _failing(error)) for _ in range(20)]
    jobs.append(("one", lambda: "done"))

    *failures, last = side_by_side(jobs)

    assert last == "done"
    assert failures == [error] * 20
