"""`./spark-submit.sh`, as a person or a cron job runs it."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from duesweep.queues.rabbitmq import topology
from support.commands import ROOT, WITHOUT_JAVA, run_program
from support.commands import run_on_shell as run
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import arguments
from support.standalone_cluster import WORKER_PATH, standalone_cluster


def test_sweep_of_many_messages_prints_its_summary_and_tells_its_exit_code(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(2_500, ["Billing"])
    endpoint.delay("Nowhere")
    later = endpoint.delay(due_in_seconds=3_600)
    file = str(endpoint.config_file(sweep__spark_from=2_501))

    # The process itself starts Spark, with all its options. And a JVM in another
    # zone than server, process and writers.
    done = run(
        "sweep", "--config", file, "--set", "store.name=a b'c", "--json",
        "--conf", "spark.app.name=x",
        JAVA_TOOL_OPTIONS="-Duser.timezone=Asia/Kolkata", TZ="Asia/Kolkata", PGTZ="Asia/Tokyo",
    )  # fmt: skip

    assert done.code == 3, done.err
    summary = done.document
    assert done.err == ""
    assert (summary.pop("exit_code"), summary["error"], summary["ledger_error"]) == (3, None, None)
    assert (summary["found"], summary["dispatched"], summary["failed"]) == (2_501, 2_500, 1)
    assert (summary["source"], summary["engine"]) == ("a b'c", "spark")
    assert summary["outcome"] == "failures"
    (row,) = ledger.rows("sweeps")
    assert {name: str(value) for name, value in row.asDict().items() if isinstance(value, int)} == {
        name: str(value) for name, value in summary.items() if isinstance(value, int)
    }
    assert row.engine == "spark"
    assert row.horizon.isoformat() == summary["horizon"]
    assert len(endpoint.queue_rows("Billing")) == 2_500
    assert later in endpoint.waiting()


def test_few_messages_need_no_java(endpoint: Endpoint, ledger: LedgerReader) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(100)
    endpoint.delay("Nowhere")
    file = str(endpoint.config_file(retry__max_attempts=1))

    done = run("sweep", "--config", file, "--json", **WITHOUT_JAVA)

    assert (done.code, done.err) == (3, "")
    summary = done.document
    assert (summary["dispatched"], summary["exhausted"], summary["engine"]) == (
        100,
        1,
        "in-process",
    )
    assert ledger.count("tombstones") == 101
    assert [row.engine for row in ledger.rows("sweeps")] == ["in-process"]


def test_nothing_due_needs_no_java(endpoint: Endpoint) -> None:
    endpoint.set_up()
    file = str(endpoint.config_file())
    run("sweep", "--config", file)

    # bench/start measures its cost; test_start_time.py says which modules it must not
    # load.
    done = run("sweep", "--config", file, **WITHOUT_JAVA)

    assert (done.code, done.err) == (0, "")
    assert "no message can be delivered now" in done.out


def test_wrong_setting_is_one_sentence_and_2(endpoint: Endpoint) -> None:
    file = endpoint.config_file(sweep__slizes=3)
    done = run("sweep", "--config", str(file))

    assert (done.code, done.out) == (2, "")
    assert done.err.strip() == (
        f"duesweep: {file}:6: There is no setting sweep.slizes. Did you mean sweep.slices?"
    )


@pytest.mark.long
def test_standalone_cluster_runs_on_the_shipped_interpreter_and_uses_all_its_cores(
    endpoint: Endpoint, ledger: LedgerReader, tmp_path: Path
) -> None:
    """Also of a worker that comes later than the session, which then has two cores, as it says."""
    endpoint.set_up("Billing")
    endpoint.delay_many(3_000, ["Billing"])
    file = str(endpoint.config_file(sweep__engine="spark", sweep__batch_rows=100))
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": tmp_path.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.app.name": "the user's",
    }
    given = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    with standalone_cluster(workers=2, cores=4) as master:
        done = run("sweep", "--config", file, "--json", *given, MASTER=master)

    assert done.code == 0, done.err
    events = [event for log in tmp_path.rglob("*") if log.is_file() for event in _events(log)]
    executors = [
        event["Task Info"]["Executor ID"]
        for event in events
        if event["Event"] == "SparkListenerTaskEnd"
    ]
    assert len(executors) >= 8
    assert len(set(executors)) == 2
    assert "the user's" in {event.get("App Name") for event in events}
    summary = done.document
    assert (summary["dispatched"], summary["outcome"]) == (3_000, "done")
    assert len(endpoint.queue_rows("Billing")) == ledger.count("tombstones") == 3_000
    # No other interpreter that the workers could find knows the driver.
    for folder in WORKER_PATH.split(":"):
        for interpreter in Path(folder).glob("python3*"):
            if os.access(interpreter, os.X_OK) and "config" not in interpreter.name:
                assert run_program(interpreter, "-c", "import psycopg").code != 0


def _events(log: Path) -> list[dict[str, Any]]:
    """The events in a log of Spark's; none if the file is no such log."""
    lines = log.read_bytes().splitlines()
    return [json.loads(line) for line in lines if line.startswith(b'{"Event"')]


def test_demo_shows_that_ledger_and_queues_agree(open_folder: Path) -> None:
    folder = open_folder / "demo"

    done = run("demo", "--folder", str(folder), "--messages", "2000")

    assert done.code == 0, done.err + done.out
    for table in ("tombstones", "retries", "errors", "sweeps"):
        assert table in done.out
    assert str(folder) in done.out.replace("\n", "")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    *_, shown = readme.partition("\n## Try it\n")[2].partition("\n## ")[0].split("```\n")[1::2]
    assert _without_numbers(shown) <= _without_numbers(done.out)
    # With a variable that leads elsewhere, a second one begins nothing, and deletes nothing.
    kept = _files(folder)
    refused = run("demo", "--folder", str(folder), DUESWEEP_STORE__DSN="postgresql://elsewhere/nsb")
    assert (refused.code, "Unset them" in refused.err, _files(folder)) == (2, True, kept)


def _files(folder: Path) -> dict[Path, int]:
    files = (each for each in folder.rglob("*") if each.is_file() and each.name != ".duesweep-demo")
    return {each: each.stat().st_mtime_ns for each in files}


def _without_numbers(text: str) -> set[str]:
    return {" ".join(re.sub(r"\d[\d,]*", "N", line).split()) for line in text.splitlines()}


def test_commands_on_rabbitmq_need_no_java(broker: Broker) -> None:
    created = run(*arguments(broker, "delays", "create"), **WITHOUT_JAVA)
    assert created.code == 0, created.err
    assert len(created.out.splitlines()) == 2 * topology.LEVELS + 1
    assert created.err == ""

    broker.channel.queue_delete(topology.level_name(3))
    verified = run(*arguments(broker, "delays", "verify"), **WITHOUT_JAVA)
    assert (verified.code, verified.err) == (3, "")
    assert "There is no such queue" in verified.out

    migrated = run(*arguments(broker, "delays", "migrate"), **WITHOUT_JAVA)
    assert (migrated.code, migrated.err) == (0, "")
    assert "Nothing to migrate" in migrated.out
