"""Counting where messages would go, over stores that find them by their keys and by their Dues."""

import pytest

from duesweep.preview import PreviewEntry, count_batches
from duesweep_testing.builders import delayed_row
from duesweep_testing.memory import MemoryStore
from duesweep_testing.memory_queue import MemoryQueue
from duesweep_testing.sweeps import open_sweep
from support.contract.due_keys import DueKeyStore


@pytest.mark.parametrize("kind", [MemoryStore, DueKeyStore])
def test_each_message_is_counted_once_and_none_is_moved(kind: type[MemoryStore]) -> None:
    destinations = ["Billing"] * 10 + ["Shipping"] * 20 + ["Nowhere"] * 3
    rows = [delayed_row(destination) for destination in destinations]
    store, queue = kind(rows), MemoryQueue("Billing", "Shipping")
    claim_keys = [row.key if kind is MemoryStore else str(row.due_us) for row in rows]

    found = count_batches(
        store, queue, open_sweep(store), [claim_keys[n : n + 10] for n in range(0, 33, 10)]
    )

    assert found == {
        PreviewEntry("Billing"): 10,
        PreviewEntry("Shipping"): 20,
        PreviewEntry("Nowhere", problem="There is no queue Nowhere"): 3,
    }
    assert len(store.rows) == 33
    assert all(not sent for sent in queue.arrived.values())
