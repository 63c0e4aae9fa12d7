"""The documented questions to the ledger, each asked in the engine that it is for."""

import os
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duesweep.sweep.spark import SparkEngine
from support.commands import ROOT, run_program
from support.endpoint import Endpoint
from support.sweeps import run_sweep

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROOT = "/var/lib/duesweep/ledger"


def _blocks(
    language: str, ledger: Path, page: str = "docs/ledger.md", title: str = "Query the ledger"
) -> list[str]:
    """The blocks in a language of a page's section about the ledger, asking this ledger."""
    text = (ROOT / page).read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = [text.replace(_ROOT, str(ledger)) for kind, text in _FENCE.findall(section)]
    kinds = [kind for kind, _ in _FENCE.findall(section)]
    return [text for kind, text in zip(kinds, found, strict=True) if kind == language]


@pytest.fixture
def ledger(spark: SparkSession, endpoint: Endpoint) -> Path:
    """A ledger of three messages that were delivered, and of one that failed."""
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(4, ["Billing", "Shipping", "Billing", "Nowhere"])
    run_sweep(endpoint, SparkEngine(spark))
    return endpoint.folder / "ledger"


def test_queries_run_in_spark_sql(spark: SparkSession, ledger: Path) -> None:
    (block,) = _blocks("sql", ledger)
    lateness, failures = [spark.sql(query) for query in block.split(";") if query.strip()]

    assert {(row.queue, row.messages) for row in lateness.collect()} == {
        ('"public"."Billing"', 2),
        ('"public"."Shipping"', 1),
    }
    assert all(row.p95_ms >= 60_000 for row in lateness.collect())
    (failure,) = failures.collect()
    assert (failure.destination, failure.messages) == ("Nowhere", 1)
    assert "There is no queue table" in failure.error_text


def test_queries_about_one_message_run(
    spark: SparkSession, endpoint: Endpoint, ledger: Path
) -> None:
    blocks = _blocks("sql", ledger, "docs/life-of-a-message.md", "Where to look")
    *about_ledger, unsettled = [block.replace(";", "") for block in blocks]
    journal = {f"duesweep_{name}": endpoint.own_table(name) for name in ("sweeps", "journal")}
    for name, table in journal.items():
        unsettled = unsettled.replace(f" {name} ", f" {table} ")
    (message, *_) = spark.read.format("delta").load(str(ledger / "tombstones")).collect()

    tombstones, suspects, doubles = [
        spark.sql(query.replace("…", message.message_id)).collect() for query in about_ledger
    ]

    (tombstone,) = tombstones
    assert (tombstone.message_key, tombstone.outcome) == (message.message_key, "dispatched")
    assert (tombstone.sweep, tombstone.reason) == ("failures", None)
    assert (suspects, doubles) == ([], [])
    assert endpoint.fetch(unsettled) == []


@pytest.mark.long
def test_command_for_the_queries_runs_from_the_checkout(ledger: Path, tmp_path: Path) -> None:
    (command,) = _blocks("", ledger)
    (block,) = _blocks("sql", ledger)
    queries = tmp_path / "queries.sql"
    queries.write_text(block, encoding="utf-8")
    # A new Spark in another folder, as for a reader of the page.
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("SPARK_", "PYSPARK_"))}

    ran = run_program(
        "bash", "-c", f"{command.strip()} -f {queries}",
        cwd=ROOT, env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip

    assert ran.code == 0, ran.err[-3_000:]
    lines = [line.split("\t") for line in ran.out.splitlines()]
    assert ['"public"."Billing"', "2"] in [line[:2] for line in lines]
    assert [line[0] for line in lines if line[-1] == "1" and len(line) == 3] == ["Nowhere"]


def test_queries_run_in_duckdb(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = _blocks("python", ledger)

    # The names that DuckDB looks up are the block's own globals.
    exec(compile(block, "ledger.md", "exec"), {"__name__": "page"})

    told = capsys.readouterr().out
    assert re.search(r'"public"\."Billing"\s*\W\s*2\b', told)
    assert re.search(r'"public"\."Shipping"\s*\W\s*1\b', told)
