"""The command `duesweep`, following a trial's plan; or, warm, one sweep after the other on Spark.

Usage: sweep_command.py once <plan> <argument …>, or sweep_command.py spark <master>

On Spark it prints `ready`, reads `{"plan": …, "arguments": …}` from each line of stdin, and prints
`=` and the exit code after each.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from duesweep.cli.app import main
from support.faults.power import noting_syncs
from support.trials.armed import following
from support.trials.points import Plan


def run(plan: Plan, arguments: Sequence[str]) -> int:
    # Who was started in the background ignores it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with noting_syncs(plan.synced), following(plan):
        return main(arguments)


def _run_on_spark(master: str) -> None:
    from duesweep import config as configuration  # noqa: PLC0415 - loads Spark
    from duesweep.drivers.spark import spark_session  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = spark_session(configuration.spark_start(), master=master)
    # To compile Java for queries of a few rows takes most of their time.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    spark.range(2).foreachPartition(lambda _: None)
    print("ready", flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        code = run(Plan(**task["plan"]), task["arguments"])
        print(f"={int(code)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "spark":
        _run_on_spark(sys.argv[2])
    else:
        sys.exit(run(Plan(**json.loads(sys.argv[2])), sys.argv[3:]))
