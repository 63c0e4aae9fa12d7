"""A store that users bring, swept with Spark."""

from collections.abc import Iterator

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from duesweep.sweep.spark import SparkEngine
from support import acme_stores
from support.commands import Ran
from support.endpoint import Endpoint
from support.sweeps import run_sweep

CUSTOM = {
    "store__kind": "support.acme_stores:AcmeStore",
    "store__options__zone": "UTC",
    "queues__default__kind": "postgresql",
}


@pytest.fixture
def _by_value() -> Iterator[None]:
    """Spark's workers cannot import the tests' modules; a user gives --py-files."""
    cloudpickle.register_pickle_by_value(acme_stores)
    yield
    cloudpickle.unregister_pickle_by_value(acme_stores)


@pytest.mark.usefixtures("_by_value")
def test_messages_of_a_custom_store_are_delivered_in_its_transaction(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", **CUSTOM)
    endpoint.delay_many(300)

    context = endpoint.context(**CUSTOM)
    summary = run_sweep(context, SparkEngine(spark))

    assert context.queue.shares_transaction
    assert (summary.source, summary.dispatched, summary.failed) == ("acme/Sales.Orders", 300, 0)
    assert len({row.message_id for row in endpoint.queue_rows("Billing")}) == 300
    assert endpoint.waiting() == []


def test_setup_tells_that_the_store_has_set_itself_up_and_which_queues_it_created(
    endpoint: Endpoint,
) -> None:
    first, again = (endpoint.run("setup", retry__error_queue="error", **CUSTOM) for _ in range(2))

    own = "AcmeStore has run its own setup.\n"
    created = 'created "public"."Sales.Orders"\ncreated "public"."error"\n'
    assert (first, again) == (Ran(0, own + created, ""), Ran(0, own, ""))
    assert endpoint.waiting() == []
    assert endpoint.queue_rows("error") == []


def test_setup_creates_queues_for_a_store_that_creates_nothing(endpoint: Endpoint) -> None:
    strange = CUSTOM | {"store__kind": "support.acme_stores:StrangeStore"}

    ran = endpoint.run("setup", queues__default__dsn=endpoint.dsn, **strange)

    assert (ran.code, ran.out) == (
        0,
        "StrangeStore has no set_up_infrastructure(), so its tables must exist already.\n"
        'created "public"."Sales.Orders"\n',
    )
    assert endpoint.queue_rows("Sales.Orders") == []
