"""Two commands that put messages back, given at the same moment."""

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from duesweep.core.change import MessageFilter
from duesweep.core.errors import StoreError
from duesweep.operations.change import cancel
from duesweep.operations.command import Changed
from duesweep.operations.restore import choose_cancelled, restore
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_driver import MemoryJournal, MemorySweeps
from duesweep_testing.memory_ledger import MemoryTables
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import context_of
from support.simulation.run import ProcessClock, SimulatedWorld
from support.simulation.scheduler import Process, Scheduler


def _slowed(step: Callable[..., Any], scheduler: Scheduler) -> Callable[..., Any]:
    def slowly(*arguments: Any, **more: Any) -> Any:
        result = step(*arguments, **more)
        scheduler.sleep(0.01)
        return result

    return slowly


@pytest.mark.parametrize("seed", range(5))
def test_one_goes_on_and_the_other_waits_for_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(seed)
    store, tables = MemoryStore(), MemoryTables()
    rows = [delayed_row("Billing") for _ in range(3)]
    store.rows |= {row.key: row for row in rows}
    done: list[Changed] = []

    def give(name: str) -> None:
        context: Any = context_of(
            store,
            MemoryQueue(),
            world=SimulatedWorld(ProcessClock(scheduler, 0.0), f"{seed}, {name}"),
            tables=tables,
        )
        endpoint: Any = SimpleNamespace(context=context, source=store.source, spark=None)
        if name == "cancel":
            cancel(endpoint, MessageFilter(), reason="a test", everything=True)
            return
        cancelled = choose_cancelled(endpoint, [row.key for row in rows])
        with suppress(StoreError):
            done.append(restore(endpoint, cancelled, reason="a test"))

    scheduler.spawn(Process("first"), "cancel", lambda: give("cancel"))
    scheduler.run(10.0)
    assert not store.rows

    # Each opens its command before the other one looks, and looks before the other one closes.
    for kind, name in ((MemorySweeps, "open"), (MemoryJournal, "unsettled")):
        monkeypatch.setattr(kind, name, _slowed(getattr(kind, name), scheduler))
    for name in ("one", "other"):
        scheduler.spawn(Process(name), name, lambda name=name: give(name))
    scheduler.run(60.0)

    assert sorted(one.changed for one in done) == [0, 3]
    assert len(store.rows) == len(rows)
