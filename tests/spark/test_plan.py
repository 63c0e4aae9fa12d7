"""Slices of a plan."""

import sys
from zipimport import zipimporter

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from duesweep.core.policy import Slicing
from duesweep.sweep import spark as engine_module
from duesweep.sweep.spark import SparkEngine, claim_keys_df
from support.endpoint import Endpoint
from support.sweeps import run_sweep


@pytest.mark.long
def test_million_keys_with_one_due_make_equal_slices(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    endpoint.execute(
        f"INSERT INTO {endpoint.delayed} (headers, due) "
        "SELECT '{}', '2026-01-01T00:00:00Z' FROM generate_series(1, 1000000)"
    )
    context = endpoint.context()
    with context.store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        plan = session.due.plan(run.horizon, Slicing(8))
        key_df = claim_keys_df(spark, session.due.jdbc(), plan).select(
            F.spark_partition_id().alias("slice"),
            F.explode(F.split("claim_keys", ",")).alias("key"),
        )
        sizes = [row["count"] for row in key_df.groupBy("slice").count().collect()]
        distinct = key_df.select("key").distinct().count()

    assert plan.found == sum(plan.planned) == sum(sizes) == distinct == 1_000_000
    assert len(sizes) == len(plan.planned) == 8
    assert max(sizes) <= 1.5 * sum(sizes) / len(sizes)


def test_message_rescheduled_after_the_plan_stays(
    spark: SparkSession, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:

    endpoint.set_up("Billing")
    stays, *_ = endpoint.delay_many(5)

    def reschedule_then_dispatch(*arguments: object) -> None:
        endpoint.execute(
            f"UPDATE {endpoint.delayed} SET due = now() + interval '1 day' WHERE id = $1", stays
        )
        run_slices(*arguments)

    run_slices = engine_module.run_slices
    # Keys are read lazily, in the tasks: pin them first, so that the plan is really older.
    original_claim_keys_df = engine_module.claim_keys_df
    monkeypatch.setattr(
        engine_module,
        "claim_keys_df",
        lambda *arguments: spark.createDataFrame(
            original_claim_keys_df(*arguments).collect()
        ).coalesce(1),
    )
    monkeypatch.setattr(engine_module, "run_slices", reschedule_then_dispatch)

    summary = run_sweep(endpoint, SparkEngine(spark), sweep__slices=1)

    assert (summary.found, summary.dispatched, summary.eligible_later) == (5, 4, 1)
    assert (summary.skipped, summary.outcome) == (0, "done")
    assert endpoint.waiting() == [stays]


def test_session_that_spark_opens_has_our_name_and_our_time_outs(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    database = endpoint.server.admin.info.dbname
    endpoint.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '1s'")
    context = endpoint.context()
    with context.store.open_driver() as session:
        source = session.due.jdbc()

    settings = ("application_name", "idle_in_transaction_session_timeout", "statement_timeout")
    columns = ", ".join(f"current_setting('{name}') AS {name}" for name in settings)
    query = f"(SELECT {columns}) AS settings"
    # As the plan is read: rows are fetched in parts, so within a transaction.
    properties = source.properties | {"fetchsize": "100"}
    (found,) = spark.read.jdbc(source.url, query, properties=properties).collect()

    assert found.application_name == "duesweep plan"
    assert found.idle_in_transaction_session_timeout == "10min"
    assert found.statement_timeout == "9s"


def test_worker_that_has_swept_looks_into_no_archive_before_its_next_task(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2)

    summary = run_sweep(endpoint, SparkEngine(spark), sweep__slices=1)

    def archives(_: object) -> list[tuple[bool, list[str]]]:
        finders = sys.path_importer_cache.items()
        has_swept = "duesweep.sweep.slice" in sys.modules
        return [(has_swept, [path for path, one in finders if isinstance(one, zipimporter)])]

    # More tasks than workers, which are reused.
    found = spark.sparkContext.parallelize(range(8), 8).mapPartitions(archives).collect()
    assert summary.dispatched == 2
    assert (True, []) in found
