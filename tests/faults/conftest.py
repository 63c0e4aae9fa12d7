"""What the tests of faults share."""

from collections.abc import Iterator

import pytest
from pyspark import cloudpickle

from support.endpoint import Endpoint
from support.faults.dead_sweeps import Dead, await_end, dispatch_without_settling
from support.trials import armed, points


@pytest.fixture
def points_in_workers() -> Iterator[None]:
    """Spark's workers of the tests cannot import the tests' modules, as those of the trials can."""
    for module in (armed, points):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (armed, points):
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture(params=["delta-rs", "spark"])
def dead(request: pytest.FixtureRequest, endpoint: Endpoint) -> Dead:
    """7 dispatched, 2 failed, 1 exhausted, in batches of 3; its driver is gone."""
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    exhausted, *_ = endpoint.delay_many(3, ["Nowhere"])
    context = endpoint.context(
        retry__max_attempts=2, sweep__batch_rows=3, ledger__writer=request.param
    )
    endpoint.execute(
        "INSERT INTO duesweep_attempts"
        " VALUES ($1, $2, NULL, NULL, 1, now(), now(), now(), 'x', 'x')",
        context.store.source,
        exhausted,
    )
    with context.store.open_driver() as session:
        dead = Dead(context, dispatch_without_settling(context, session))
    await_end(dead)
    return dead
