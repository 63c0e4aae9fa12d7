"""A sweep on the shell that is stopped: it ends well, and the next sweep takes the rest."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from duesweep.cli.app import main
from support.endpoint import Endpoint
from support.faults.slow_queue import slow_down, speed_up
from support.ledger_reader import LedgerReader
from support.standalone_cluster import standalone_cluster
from support.sweeps import run_sweep
from support.waiting import until

_ROOT = Path(__file__).parents[2]
_BATCHES = "SELECT FROM duesweep_journal WHERE kind = 'batch'"
_MESSAGES = 5_000
_BATCH_ROWS = 5
_ENGINES = ["in-process", "spark"]
# How long a stop may take at most, on a busy machine: a batch, settling, and the end of the JVM.
_STOP_SECONDS = 180


def _to_process(number: int) -> Callable[[int], None]:
    return lambda pid: os.kill(pid, number)


def _to_group(number: int) -> Callable[[int], None]:
    return lambda pid: os.killpg(pid, number)


STOPS = {
    "SIGTERM": _to_process(signal.SIGTERM),
    "SIGINT": _to_process(signal.SIGINT),
    # As a terminal does.
    "Ctrl-C": _to_group(signal.SIGINT),
    # As `timeout` and some schedulers do.
    "SIGTERM to all": _to_group(signal.SIGTERM),
}


@dataclass(frozen=True, slots=True)
class _Stopped:
    """What a sweep told when it had ended."""

    code: int
    summary: dict[str, Any]
    said: Sequence[str]


@pytest.fixture
def slow(endpoint: Endpoint) -> Endpoint:
    """5,000 messages for a slow queue."""
    endpoint.set_up("Billing")
    endpoint.delay_many(_MESSAGES)
    slow_down(endpoint)
    return endpoint


def _start(
    endpoint: Endpoint, engine: str, *options: str, **environment: str
) -> "subprocess.Popen[str]":
    spark_from = 0 if engine == "spark" else 1_000_000
    file = endpoint.config_file(
        sweep__batch_rows=_BATCH_ROWS, sweep__slices=2, sweep__spark_from=spark_from
    )
    return subprocess.Popen(
        [str(_ROOT / "spark-submit.sh"), "sweep", "--json", "--config", str(file), *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | environment,
    )  # fmt: skip


def _await_batches(endpoint: Endpoint) -> None:
    until(lambda: len(endpoint.fetch(_BATCHES)) > 5, seconds=300)


def _end_of(process: "subprocess.Popen[str]", seconds: float = _STOP_SECONDS) -> _Stopped:
    output, said = process.communicate(timeout=seconds)
    (told,) = map(json.loads, output.splitlines())
    return _Stopped(process.returncode, told, said.splitlines())


def _check_account(stopped: _Stopped, endpoint: Endpoint, ledger: LedgerReader) -> None:
    """The numbers add up, and are those of queue, store and ledger."""
    told = stopped.summary
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
    """It takes the rest: nothing is lost, and nothing doubled."""
    speed_up(endpoint)

    run_sweep(endpoint)

    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == _MESSAGES
    assert len(endpoint.queue_rows("Billing")) == _MESSAGES


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
    assert "stopping after the batches in hand" in said
    assert (stopped.code, stopped.summary["exit_code"]) == (0, 0)
    assert stopped.summary["engine"] == engine
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)


def test_time_that_is_over_finishes_the_batches_in_hand_settles_and_exits_0(
    slow: Endpoint,
    ledger: LedgerReader,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As from spark-submit.sh: the time counts from the start of the command.
    monkeypatch.setenv("DUESWEEP_STARTED", str(time.time()))
    file = str(slow.config_file(sweep__batch_rows=_BATCH_ROWS, sweep__spark_from=1_000_000))

    code = main(["sweep", "--json", "--config", file, "--max-seconds", "4"])

    output, said = capsys.readouterr()
    stopped = _Stopped(code, json.loads(output), said.splitlines())
    assert (stopped.code, stopped.said) == (0, [])
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)


@pytest.mark.long
def test_time_that_is_over_stops_the_tasks_of_spark_too(
    slow: Endpoint, ledger: LedgerReader
) -> None:
    stopped = _end_of(_start(slow, "spark", "--max-seconds", "60"), 60 + _STOP_SECONDS)

    assert (stopped.code, stopped.said) == (0, [])
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


@pytest.mark.long
def test_tasks_of_a_cluster_are_stopped_too(slow: Endpoint, ledger: LedgerReader) -> None:
    with standalone_cluster(workers=2) as master:
        process = _start(slow, "spark", MASTER=master)
        _await_batches(slow)
        os.kill(process.pid, signal.SIGTERM)
        stopped = _end_of(process)

    assert stopped.code == 0
    _check_account(stopped, slow, ledger)
    _check_next_sweep(slow, ledger)
