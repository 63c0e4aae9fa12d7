"""The facts of the report page, as operations/status.py reads them."""

from datetime import timedelta

import pytest

from duesweep.operations import status
from duesweep.stores.due import Work
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_driver import MemoryDue
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import context_of

_LATE = timedelta(hours=20)


@pytest.mark.parametrize("looked_at", [3, 30])
def test_late_message_is_a_fault_also_behind_many_that_are_held_back(
    looked_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = MemoryStore([]).now
    held = [delayed_row("Billing", due=now - timedelta(days=2)) for _ in range(3)]
    late = delayed_row("Shipping", due=now - _LATE)
    store = MemoryStore([*held, late])
    with store.open_driver() as session:
        session.people.pause("Billing", None, "ops@host", "why")
    monkeypatch.setattr(status, "_MOST_LOOKED_AT", looked_at)
    # As the SQL stores tell it.
    monkeypatch.setattr(MemoryDue, "find_work", lambda *_: Work(now - _LATE))

    waiting = status.read_waiting(context_of(store, MemoryQueue("Billing", "Shipping")))

    found = status.Status("nsb", waiting, None, objective_seconds=60.0).judged()
    (fault,) = [one.text for one in found.concerns if one.severity is status.Severity.FAULT]
    assert fault.startswith("the next sweep's oldest message has been due since")
