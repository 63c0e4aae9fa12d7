"""Several endpoints in one process."""

import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from duesweep.core.errors import ConfigError
from duesweep.watch.several import run_all


def _raising(error: Exception) -> Callable[[], None]:
    def watch() -> None:
        raise error

    return watch


def test_single_one_raises_and_leaves_this_thread_to_signals() -> None:
    threads: list[threading.Thread] = []

    assert run_all([lambda: threads.append(threading.current_thread())]) == [0]
    assert threading.current_thread() not in threads
    with pytest.raises(ConfigError):
        run_all([_raising(ConfigError("no such queue"))])


def test_one_that_may_be_left_is_not_waited_for_and_the_others_are() -> None:
    silent, done = threading.Event(), threading.Event()
    looks: list[int] = []

    def lasting() -> None:
        assert done.wait(60)

    def look_after() -> None:
        looks.append(1)
        done.set()

    assert run_all([silent.wait, lasting], look_after, lambda number: number == 0) == [0]
    assert (silent.is_set(), done.is_set()) == (False, True)
    silent.set()


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
        codes = run_all([lasting, failing, _raising(ConfigError("no such queue"))])

    assert sorted(codes) == [1, 2]
    assert lasted.is_set()
    assert sorted(line.get("error", "a stack") for line in lines) == ["a stack", "no such queue"]
