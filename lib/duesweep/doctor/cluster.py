"""Facts about a Spark session, its executors and the ledger. DataFrame API only."""

import json
import re
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

import duesweep
from duesweep.config.adapters import Needs
from duesweep.core.errors import DuesweepError
from duesweep.doctor.examine import LedgerBinding
from duesweep.doctor.question import question
from duesweep.doctor.spark import ExecutorFacts, LedgerFacts, SparkFacts, Versions
from duesweep.drivers.spark import SPARK_ERRORS, sentence
from duesweep.ledger.ledger import Ledger
from duesweep.sweep.spark import SparkEngine

_TASKS_PER_CORE, _MOST_TASKS = 2, 1_000
# A task that ends at once frees its core for the next one, and other executors get none.
_TASK_SECONDS = 0.2
# local[4] tries once, local[4,3] three times.
_LOCAL_MASTER = re.compile(r"local(?:\[[^],]*(?:,\s*(\d+))?\])?")
_DEFAULT_TRIES = "4"


def spark_facts(spark: SparkSession, needs: Needs) -> SparkFacts:
    """Facts about a session; starts one small job."""
    executors, problem = [], None
    try:
        executors = _executors(spark, needs)
    except SPARK_ERRORS as error:
        problem = sentence(error)
    master = _setting(spark, "spark.master", "a cluster")
    return SparkFacts(
        version=spark.version,
        master=master,
        speculation=_setting(spark, "spark.speculation", "false").lower() == "true",
        task_tries=_tries(spark, master),
        session_zone=_setting(spark, "spark.sql.session.timeZone", "UTC"),
        jvm_zone=_jvm_zone(spark),
        driver=Versions(_python(), duesweep.__version__),
        executors=executors,
        problem=problem,
    )


def ledger_facts(ledger: Ledger, binding: LedgerBinding) -> LedgerFacts:
    """Which ledger is at its root, and which one the journal belongs to."""
    root = ledger.root
    try:
        identity = ledger.read()
        identity.refuse_stray()
        if identity.ledger_id == binding.ledger_id:
            identity.refuse_incomplete(root)
    except DuesweepError as error:
        return LedgerFacts(root, None, binding.ledger_id, error.problem)
    return LedgerFacts(root, identity.ledger_id, binding.ledger_id, unknown=binding.problem)


def _setting(spark: SparkSession, name: str, default: str) -> str:
    try:
        return str(spark.conf.get(name, default))
    except PySparkException:
        # Some platforms hide some settings.
        return default


def _tries(spark: SparkSession, master: str) -> int | None:
    local = _LOCAL_MASTER.fullmatch(master)
    tries = _setting(spark, "spark.task.maxFailures", _DEFAULT_TRIES)
    if local:
        tries = local[1] or "1"
    return int(tries) if tries.isdecimal() else None


def _jvm_zone(spark: SparkSession) -> str | None:
    try:
        row = spark.sql("SELECT reflect('java.time.ZoneId', 'systemDefault') AS zone").first()
    except SPARK_ERRORS:
        return None
    return str(row["zone"]) if row else None


def _executors(spark: SparkSession, needs: Needs) -> list[ExecutorFacts]:
    tasks = min(SparkEngine(spark).cores * _TASKS_PER_CORE, _MOST_TASKS)
    # Not by Arrow, which may be missing there.
    ask = F.udf(question(needs, _TASK_SECONDS), "string", useArrow=False)
    answers_df = spark.range(0, tasks, 1, tasks).select(ask("id").alias("answer"))
    answers = sorted({row["answer"] for row in answers_df.collect()})
    return [_facts(json.loads(answer)) for answer in answers]


def _facts(answer: dict[str, Any]) -> ExecutorFacts:
    versions = Versions(answer["python"], answer["duesweep"])
    return ExecutorFacts(answer["host"], versions, answer["failures"])


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
