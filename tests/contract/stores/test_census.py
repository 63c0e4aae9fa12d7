"""Counting where messages would go, over stores that find them by their keys and by their Dues."""

import pytest
from contract.due_tickets import DueTicketStore

from duesweep.census import Heading, counted
from duesweep.testing.builders import delayed_row
from duesweep.testing.memory import MemoryStore
from duesweep.testing.memory_queue import MemoryQueue


@pytest.mark.parametrize("kind", [MemoryStore, DueTicketStore])
def test_each_message_is_counted_once_and_none_is_moved(kind: type[MemoryStore]) -> None:
    destinations = ["Billing"] * 10 + ["Shipping"] * 20 + ["Nowhere"] * 3
    rows = [delayed_row(destination) for destination in destinations]
    store, queue = kind(rows), MemoryQueue("Billing", "Shipping")
    tickets = [row.key if kind is MemoryStore else str(row.due_us) for row in rows]

    found = counted(
        store, queue, store.open_sweep(), [tickets[n : n + 10] for n in range(0, 33, 10)]
    )

    assert found == {
        Heading("Billing"): 10,
        Heading("Shipping"): 20,
        Heading("Nowhere", problem="There is no queue Nowhere"): 3,
    }
    assert len(store.rows) == 33
    assert all(not letters for letters in queue.letters.values())
