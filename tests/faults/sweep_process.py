"""A sweep in a process of its own: ready on stdout, starts at a line on stdin, prints its summary.

Usage: sweep_process.py <master> <moment> <batch> <config file> [section.key=value ...]
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from pyspark import cloudpickle

from duesweep import config as configuration
from duesweep import wiring
from duesweep.cli.report import as_json
from duesweep.session import spark_session
from duesweep.sweep import exit_code, sweep

sys.path.insert(0, str(Path(__file__).parents[1]))
from faults import failing_store


def main(master: str, moment: str, batch: str, file: str, *overrides: str) -> int:
    cloudpickle.register_pickle_by_value(failing_store)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    parts = wiring.parts(configuration.load(Path(file), overrides))
    failing = failing_store.FailingStore(parts.store, moment, int(batch))  # type: ignore[arg-type]
    spark = spark_session(configuration.jars(), master=master)
    spark.range(2).foreachPartition(lambda _: None)
    print("ready", flush=True)
    sys.stdin.readline()
    summary = sweep(spark, replace(parts, store=failing))
    print(json.dumps(as_json(summary)), flush=True)
    return exit_code(summary)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
