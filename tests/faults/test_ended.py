"""A sweep on the shell that is ended at once: a sentence, a document, and nothing is lost."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from support.endpoint import Endpoint
from support.faults.slow_queue import slow_down, speed_up
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.waiting import until

_ROOT = Path(__file__).parents[2]
_BATCHES = "SELECT FROM duesweep_journal WHERE kind = 'batch'"
_MESSAGES = 1_000
_STOP_WAITS = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%stop_at = least%'"
)
# What comes sooner is the same signal once more.
_SECOND_SECONDS = 0.5


def _jvm(pid: int) -> int:
    """The process of the JVM that the driver `pid` has started."""
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    (jvm,) = [child for child in found if "java" in Path(f"/proc/{child}/cmdline").read_text()]
    return jvm


def _to_jvm(number: int) -> Callable[[int], None]:
    return lambda pid: os.kill(_jvm(pid), number)


def _terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def _interrupt(pid: int) -> None:
    os.killpg(pid, signal.SIGINT)


_JVM_GONE = "Spark's JVM has ended"
# Their first signal stops a sweep well (test_stopped.py); the second one ends it.
_TWICE = {_terminate, _interrupt}
_ALWAYS_SPARK, _NEVER_SPARK = 0, 1_000_000
# `sweep.spark_from`, what is done to the process, its exit code, and a pattern of what it says.
ENDS = {
    "terminated": (_NEVER_SPARK, _terminate, 4, "terminated"),
    "Ctrl-C": (_NEVER_SPARK, _interrupt, 130, "interrupted"),
    "JVM killed": (_ALWAYS_SPARK, _to_jvm(signal.SIGKILL), 4, _JVM_GONE),
    # It ends the job first, and sometimes still tells of it.
    "JVM terminated": (
        _ALWAYS_SPARK,
        _to_jvm(signal.SIGTERM),
        4,
        f"{_JVM_GONE}|Spark was shut down",
    ),
    "terminated on Spark": (_ALWAYS_SPARK, _terminate, 4, "terminated"),
    "Ctrl-C on Spark": (_ALWAYS_SPARK, _interrupt, 130, "interrupted"),
}
_LONG = {"Ctrl-C on Spark", "JVM terminated", "terminated on Spark"}


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            end,
            marks=[pytest.mark.long] * (end in _LONG),
        )
        for end in ENDS
    ],
)
def test_sweep_that_is_ended_says_so_in_a_sentence(
    end: str, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    spark_from, signalled, code, expected = ENDS[end]
    endpoint.set_up("Billing")
    endpoint.delay_many(_MESSAGES)
    slow_down(endpoint)
    file = endpoint.config_file(sweep__batch_rows=5, sweep__spark_from=spark_from)
    process = subprocess.Popen(
        [str(_ROOT / "spark-submit.sh"), "sweep", "--json", "--config", str(file)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: len(endpoint.fetch(_BATCHES)) > 5, seconds=300)
    if signalled in _TWICE:
        _signal_twice(endpoint, lambda: signalled(process.pid))
    else:
        signalled(process.pid)

    output, said = process.communicate(timeout=300)

    assert process.returncode == code, said
    *logged, sentence = [line for line in said.splitlines() if "a second signal" not in line]
    assert re.search(expected, sentence)
    # What is logged is one line of JSON, not a stack.
    assert [json.loads(line)["event"] for line in logged] in ([], ["dispatch_cut_short"])
    (told,) = map(json.loads, output.splitlines())
    assert (told["exit_code"], told["outcome"]) in {(code, "error"), (4, "incomplete")}
    assert re.search(expected, told["error"])

    speed_up(endpoint)
    run_sweep(endpoint)

    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == _MESSAGES
    assert len(endpoint.queue_rows("Billing")) == _MESSAGES


def _signal_twice(endpoint: Endpoint, send: Callable[[], None]) -> None:
    """Signal a second time while the stop that the first one asked for has to wait."""
    with psycopg.connect(endpoint.dsn) as holder:
        holder.execute("SELECT FROM duesweep_sweeps FOR NO KEY UPDATE")
        send()
        deadline = time.monotonic() + _SECOND_SECONDS
        until(lambda: time.monotonic() > deadline and endpoint.fetch(_STOP_WAITS))
        send()
