"""Sessions that are kept for the next slice."""

from duesweep.sweep.job import Job
from duesweep.sweep.sessions import KeptSessions
from duesweep_testing.memory import MemoryStore
from duesweep_testing.sweeps import open_sweep
from support.dispatch_world import World


def test_sessions_of_a_slice_that_outlives_a_sweep_are_kept_for_no_other() -> None:
    world, kept = World(MemoryStore()), KeptSessions()
    job = Job(world.context(), open_sweep(world.store))

    with kept.opened(job) as late:
        kept.close()
    with kept.opened(job) as first:
        pass
    with kept.opened(job) as second:
        pass

    assert first is second
    assert late is not first
