"""A sweep on the shell that is stopped, or ended at once: the next one takes the rest."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duesweep import config as configuration
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.standalone_cluster import standalone_cluster
from support.sweeps import run_sweep
from support.trials.processes import jvm_of
from support.waiting import until

_ROOT = Path(__file__).parents[2]
_BATCHES = "SELECT FROM duesweep_journal WHERE kind = 'batch'"
_STOP_WAITS = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%stop_at = least%'"
)
_MESSAGES = 2_000
_BATCH_ROWS = 5
_SPARK_FROM = {"in-process": 1_000_000, "spark": 0}
# How long a stop may take at most, on a busy machine: a batch, settling, and the end of the JVM.
_STOP_SECONDS = 180
# A signal that comes sooner is the same one, repeated.
_SECOND_SECONDS = 0.5

Signal = Callable[[int], None]


def _to_process(number: int) -> Signal:
    return lambda pid: os.kill(pid, number)


def _to_group(number: int) -> Signal:
    return lambda pid: os.killpg(pid, number)


def _to_jvm(number: int) -> Signal:
    return lambda pid: os.kill(jvm_of(pid), number)


@dataclass(frozen=True, slots=True)
class _Ended:
    """The output of a sweep that has ended."""

    code: int
    summary: dict[str, Any]
    said: Sequence[str]


@pytest.fixture
def slow(endpoint: Endpoint) -> Endpoint:
    """Messages for a slow queue, which takes them in 40 s or more."""
    endpoint.set_up("Billing")
    endpoint.delay_many(_MESSAGES)
    # No sweep is done before it is stopped or ended.
    batch = "PERFORM pg_sleep(0.2); RETURN NULL;"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', batch, each="STATEMENT")
    return endpoint


def _start(
    endpoint: Endpoint, engine: str, *options: str, **environment: str
) -> "subprocess.Popen[str]":
    file = endpoint.config_file(
        sweep__batch_rows=_BATCH_ROWS, sweep__slices=2, sweep__spark_from=_SPARK_FROM[engine]
    )
    return subprocess.Popen(
        [str(_ROOT / "spark-submit.sh"), "sweep", "--json", "--config", str(file), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | environment,
    )  # fmt: skip


def _await_batches(endpoint: Endpoint) -> None:
    until(lambda: len(endpoint.fetch(_BATCHES)) > 5, seconds=300)


def _end_of(process: "subprocess.Popen[str]", seconds: float = _STOP_SECONDS) -> _Ended:
    output, said = process.communicate(timeout=seconds)
    (told,) = map(json.loads, output.splitlines())
    return _Ended(process.returncode, told, said.splitlines())


def _check_account(ended: _Ended, endpoint: Endpoint, ledger: LedgerReader) -> None:
    """The numbers add up, and agree with queue, store and ledger."""
    told = ended.summary
    assert (told["outcome"], told["reason"], told["error"]) == ("stopped", None, None)
    assert told["found"] == told["claimed"] + told["left"]
    assert told["skipped"] == told["gone"] == told["eligible_later"] == 0
    assert told["dispatched"] == len(endpoint.queue_rows("Billing")) > 0
    assert told["left"] + told["failed"] == len(endpoint.waiting()) > 0
    (row,) = ledger.rows("sweeps")
    names = ("outcome", "found", "claimed", "dispatched", "failed", "left", "reason")
    assert {name: getattr(row, name) for name in names} == {name: told[name] for name in names}
    assert endpoint.fetch("SELECT FROM duesweep_journal") == []


def _check_next_sweep(endpoint: Endpoint, ledger: LedgerReader) -> None:
    """It takes the rest: no message is lost or doubled."""
    endpoint.execute('DROP TRIGGER acts ON "Billing"')

    run_sweep(endpoint)

    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == _MESSAGES
    assert len(endpoint.queue_rows("Billing")) == _MESSAGES


STOPS = {
    "SIGTERM": _to_process(signal.SIGTERM),
    "SIGINT": _to_process(signal.SIGINT),
    # As a terminal does.
    "Ctrl-C": _to_group(signal.SIGINT),
    # As `timeout` and some schedulers do.
    "SIGTERM to all": _to_group(signal.SIGTERM),
}


@pytest.mark.parametrize(
    ("stop", "engine"),
    [
        *((stop, "in-process") for stop in STOPS),
        pytest.param("SIGTERM", "spark", marks=pytest.mark.on_spark),
        *((stop, "spark") for stop in STOPS if stop != "SIGTERM"),
    ],
)
def test_signal_finishes_the_batches_in_hand_settles_and_exits_0(
    stop: str, engine: str, slow: Endpoint, ledger: LedgerReader
) -> None:
    process = _start(slow, engine)
    _await_batches(slow)
    STOPS[stop](process.pid)

    stopped = _end_of(process)

    (said,) = stopped.said
    assert "stopping after the current batches" in said
    assert (stopped.code, stopped.summary["exit_code"]) == (0, 0)
    assert stopped.summary["engine"] == engine
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)


def test_time_that_is_over_finishes_the_batches_in_hand_settles_and_exits_0(
    slow: Endpoint, ledger: LedgerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The time counts from the start of the process, and this one is older than the command.
    monkeypatch.setattr(configuration, "STARTED", time.time())
    settings = {"sweep__batch_rows": _BATCH_ROWS, "sweep__spark_from": 1_000_000}

    ran = slow.run("sweep", "--json", "--max-seconds", "4", **settings)

    stopped = _Ended(ran.code, ran.document, ran.err.splitlines())
    assert (stopped.code, stopped.said) == (0, [])
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)


@pytest.mark.long
@pytest.mark.parametrize("how", ["time that is over", "SIGTERM to a cluster's driver"])
def test_tasks_of_spark_and_of_a_cluster_are_stopped_too(
    how: str, slow: Endpoint, ledger: LedgerReader
) -> None:
    if how == "time that is over":
        stopped = _end_of(_start(slow, "spark", "--max-seconds", "30"), 30 + _STOP_SECONDS)
        assert stopped.said == []
    else:
        with standalone_cluster(workers=2) as master:
            process = _start(slow, "spark", MASTER=master)
            _await_batches(slow)
            os.kill(process.pid, signal.SIGTERM)
            stopped = _end_of(process)

    assert stopped.code == 0
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)


def test_messages_that_failed_before_the_stop_are_told_by_exit_code_and_reasons(
    slow: Endpoint, ledger: LedgerReader
) -> None:
    slow.delay("Nowhere", due_in_seconds=-3_600)
    process = _start(slow, "in-process")
    _await_batches(slow)
    os.kill(process.pid, signal.SIGTERM)

    stopped = _end_of(process)

    assert (stopped.code, stopped.summary["exit_code"]) == (3, 3)
    assert stopped.summary["failed"] == 1
    assert "Nowhere" in stopped.summary["failures"][0]["reason"]
    _check_account(stopped, slow, ledger)


_JVM_GONE = "Spark's JVM has ended"
# The engine, the signal, the exit code, and a pattern of the output. The first
# signal stops a sweep well (above); the second one ends it.
ENDS = {
    "terminated": ("in-process", STOPS["SIGTERM"], 4, "terminated"),
    "Ctrl-C": ("in-process", STOPS["Ctrl-C"], 130, "interrupted"),
    "JVM killed": ("spark", _to_jvm(signal.SIGKILL), 4, _JVM_GONE),
    # It ends the job first, and sometimes still reports it.
    "JVM terminated": ("spark", _to_jvm(signal.SIGTERM), 4, f"{_JVM_GONE}|Spark was shut down"),
    "terminated on Spark": ("spark", STOPS["SIGTERM"], 4, "terminated"),
    "Ctrl-C on Spark": ("spark", STOPS["Ctrl-C"], 130, "interrupted"),
}
_LONG = {"Ctrl-C on Spark", "JVM terminated", "terminated on Spark"}


@pytest.mark.parametrize(
    "end", [pytest.param(end, marks=[pytest.mark.long] * (end in _LONG)) for end in ENDS]
)
def test_sweep_that_is_ended_says_so_in_a_sentence(
    end: str, slow: Endpoint, ledger: LedgerReader
) -> None:
    engine, send, code, expected = ENDS[end]
    process = _start(slow, engine)
    _await_batches(slow)
    if "JVM" in end:
        send(process.pid)
    else:
        _send_twice(slow, lambda: send(process.pid))

    ended = _end_of(process, 300)

    assert ended.code == code, ended.said
    *logged, sentence = [line for line in ended.said if "a second signal" not in line]
    assert re.search(expected, sentence)
    # The log has one line of JSON, not a stack.
    assert [json.loads(line)["event"] for line in logged] in ([], ["dispatch_cut_short"])
    told = ended.summary
    assert (told["exit_code"], told["outcome"]) in {(code, "error"), (4, "incomplete")}
    assert re.search(expected, told["error"])
    _check_next_sweep(slow, ledger)


def _send_twice(endpoint: Endpoint, send: Callable[[], None]) -> None:
    """Signal a second time while the stop that the first one asked for has to wait."""
    with psycopg.connect(endpoint.dsn) as holder:
        holder.execute("SELECT FROM duesweep_sweeps FOR NO KEY UPDATE")
        send()
        deadline = time.monotonic() + _SECOND_SECONDS
        until(lambda: time.monotonic() > deadline and endpoint.fetch(_STOP_WAITS))
        send()
