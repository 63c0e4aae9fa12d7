"""One tick of a watcher, with a look and a sweep that stand for the real ones."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core import waits
from duesweep.stop import Stop
from duesweep.watch import tick
from duesweep.watch.tick import Ticker
from support.ticks import REPORT


@pytest.fixture
def ticker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ticker]:
    """A ticker whose look takes so many seconds, by a clock that only looks move."""

    def made(look_seconds: float, *, stop: Stop | None = None, has_work: bool = True) -> Ticker:
        now = [1_000.0]

        def look(*_: object) -> Any:
            now[0] += look_seconds
            return SimpleNamespace(
                has_work=has_work, needs_spark=False, next_due=None, reach=lambda _: None
            )

        # `Stop` reads the same clock.
        monkeypatch.setattr(time, "time", lambda: now[0])
        monkeypatch.setattr(tick, "look", look)
        monkeypatch.setattr(tick, "check", lambda *_: None)
        monkeypatch.setattr(tick, "always_needs_spark", lambda _: False)
        monkeypatch.setattr(tick, "replace", _replace)
        monkeypatch.setattr(tick, "opened_engine", lambda *_, **__: nullcontext())
        monkeypatch.setattr(tick, "sweep", lambda *_, stop, **__: _swept(stop))
        queue = SimpleNamespace(check=lambda _: None)
        store = SimpleNamespace(open_driver=lambda: nullcontext(object()))
        context: Any = SimpleNamespace(store=store, queue=queue, error_queue=None, spark_from=100)
        return Ticker(context, stop or Stop(), has_spark=False)

    return made


def _replace(value: Any, **changes: Any) -> Any:
    """As `dataclasses.replace`, but for a context that is none."""
    return value if isinstance(value, SimpleNamespace) else _REPLACE(value, **changes)


_REPLACE = tick.replace


def _swept(stop: Stop) -> Any:
    assert not stop.is_wanted
    return REPORT


@pytest.mark.parametrize("look_seconds", [0.0, 10 * tick.MOST_TICK_SECONDS])
def test_what_a_look_found_is_swept_however_long_it_took(
    ticker: Callable[..., Ticker], look_seconds: float
) -> None:
    assert ticker(look_seconds).tick().report == REPORT


@pytest.mark.parametrize("has_work", [True, False])
def test_wait_for_the_ledger_is_over_when_others_have_settled(
    ticker: Callable[..., Ticker],
    monkeypatch: pytest.MonkeyPatch,
    has_work: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    monkeypatch.setattr(waits, "LONG_SECONDS", -1)
    stop = Stop()
    stop.waits.begin(waits.LEDGER, "Process 7 has held the lock")

    ticker(0.0, stop=stop, has_work=has_work).tick()

    assert bool(stop.waits.long()) == has_work
