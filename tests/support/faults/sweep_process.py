"""A sweep in a process of its own: ready on stdout, starts at a line on stdin, prints its summary.

Usage: sweep_process.py <master or in-process> <moment> <batch> <config file> [section.key=value]
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from pyspark import cloudpickle

from duesweep import config as configuration
from duesweep import wiring
from duesweep.drivers.spark import spark_session
from duesweep.errors import DuesweepError
from duesweep.report.summary import as_json
from duesweep.stores.base import Store
from duesweep.stores.postgresql import POSTGRESQL
from duesweep.stores.store import SqlStore
from duesweep.sweep.engines import Engine, InProcessEngine
from duesweep.sweep.spark import SparkEngine
from support.sweeps import exit_code, run_sweep


def main(master: str, moment: str, batch: str, file: str, *overrides: str) -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    context = wiring.sweep_context(configuration.load(Path(file), overrides))
    failing = _failing(context.store, moment, int(batch))
    engine = _engine(master)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        summary = run_sweep(replace(context, store=failing), engine)
    except DuesweepError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return error.exit_code
    print(json.dumps(as_json(summary)), flush=True)
    return exit_code(summary)


def _engine(master: str) -> Engine:
    """Spark's session is warm."""
    if master == "in-process":
        return InProcessEngine()
    spark = spark_session(configuration.jars(), master=master)
    spark.range(2).foreachPartition(lambda _: None)
    return SparkEngine(spark)


def _failing(store: Store, moment: str, batch: int) -> Store:
    """`store`, failing. Its module goes to the tasks by value: they cannot import it."""
    if isinstance(store, SqlStore) and store.dialect == POSTGRESQL:
        from support.faults import failing_store  # noqa: PLC0415 - loads a driver

        cloudpickle.register_pickle_by_value(failing_store)
        return failing_store.FailingStore(store, moment, batch)  # type: ignore[arg-type, return-value]
    from support.faults import failing_sqlserver  # noqa: PLC0415 - loads the other

    cloudpickle.register_pickle_by_value(failing_sqlserver)
    return failing_sqlserver.FailingSqlServerStore.of(store, moment, batch)  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
