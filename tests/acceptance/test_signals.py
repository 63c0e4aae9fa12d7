"""A signal at any moment, also while Python still imports modules or before the sweep begins."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from duesweep import config as configuration
from support.commands import run
from support.endpoint import Endpoint
from support.waiting import until

_ROOT = Path(__file__).parents[2]


def _heeds_signals(process: "subprocess.Popen[str]") -> bool:
    """Whether duesweep's own code runs. Before that, Python starts, and a signal acts as on
    any program.
    """
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _signalled(command: Sequence[str], number: int, seconds: float) -> tuple[int, str, str] | None:
    """The exit code, stdout and stderr of a command that gets a signal after this many seconds;
    None: Python was still starting.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "duesweep", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(_ROOT / "lib")},
        text=True,
    ) as process:
        time.sleep(seconds)
        if process.poll() is None and not _heeds_signals(process):
            process.kill()
            return None
        process.send_signal(number)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, err


def _at_moments(command: Sequence[str], number: int, every_ms: int) -> list[tuple[int, str, str]]:
    """How the command ended, for a signal at each such moment of its first second."""
    moments = range(0, 1_000, every_ms)
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda ms: _signalled(command, number, ms / 1_000), moments))
    heeded = [end for end in ends if end is not None]
    assert len(heeded) > len(ends) / 3
    return heeded


@pytest.mark.parametrize(
    ("number", "codes", "every_ms"),
    [(signal.SIGTERM, {0, 4}, 80), (signal.SIGINT, {0, 130}, 125)],
    ids=["TERM", "INT"],
)
def test_signal_at_any_moment_of_a_sweep_is_one_sentence_and_one_document(
    endpoint: Endpoint, number: int, codes: set[int], every_ms: int
) -> None:
    endpoint.set_up("Billing")
    command = ["sweep", "--json", "--config", str(endpoint.config_file())]

    for code, out, err in _at_moments(command, number, every_ms):
        assert code in codes, err
        assert json.loads(out)["exit_code"] == code
        assert "Traceback" not in err
        assert len(err.splitlines()) <= 2, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_signal_at_any_moment_of_a_watcher_ends_it(endpoint: Endpoint, number: int) -> None:
    endpoint.set_up("Billing")
    command = ["watch", "--config", str(endpoint.config_file())]

    for code, _, err in _at_moments(command, number, 160):
        assert code in {0, 4, 130}, err
        assert "Traceback" not in err


def test_second_signal_while_metrics_are_pushed_leaves_one_document(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        gateway = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file = endpoint.config_file(metrics__pushgateway=gateway)
        with subprocess.Popen(
            [sys.executable, "-m", "duesweep", "sweep", "--json", "--config", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(_ROOT / "lib")},
            text=True,
        ) as process:
            # It sweeps, and then waits for an answer.
            connection, _ = silent.accept()
            with connection:
                process.terminate()
                # Two within 0.3 s count as one, and a busy process hears the first one late.
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(2)
                process.terminate()
                out, _ = process.communicate(timeout=60)

    assert json.loads(out)["exit_code"] == process.returncode == 4


@contextmanager
def signal_during_the_look(endpoint: Endpoint, number: signal.Signals) -> Iterator[None]:
    """A reader of the delayed table in the block waits until this process has got a signal."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"

    def send() -> None:
        try:
            with psycopg.connect(endpoint.dsn, autocommit=True) as session:
                until(lambda: session.execute(waiting, [endpoint.delayed]).fetchone() != (0,))
            os.kill(os.getpid(), number)
        finally:
            holder.rollback()

    with psycopg.connect(endpoint.dsn) as holder:
        holder.execute(f"LOCK TABLE {endpoint.delayed}".encode())
        thread = threading.Thread(target=send)
        thread.start()
        yield
        thread.join()


# 0: all messages are for Spark.
@pytest.mark.usefixtures("_ctrl_c")
@pytest.mark.parametrize("spark_from", [0, 50_000])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_before_the_sweep_begins_is_a_stop(
    number: signal.Signals, spark_from: int, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing").delay()

    with signal_during_the_look(endpoint, number):
        told = endpoint.document("sweep", sweep__spark_from=spark_from)

    assert (told["outcome"], told["exit_code"], told["error"]) == ("stopped", 0, None)
    assert (told["sweep_id"], told["dispatched"]) == (None, 0)
    assert len(endpoint.waiting()) == 1


@pytest.mark.parametrize(("due_in_seconds", "outcome"), [(-60, "stopped"), (3_600, "idle")])
def test_time_counts_from_the_start_of_the_command(
    due_in_seconds: float, outcome: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay(due_in_seconds=due_in_seconds)
    # Starting Spark takes a while.
    monkeypatch.setattr(configuration, "STARTED", 1000.5)

    assert endpoint.document("sweep", "--max-seconds", "60")["outcome"] == outcome
    assert len(endpoint.waiting()) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "604801", "1.5"])
def test_time_that_makes_no_sense_is_refused(seconds: str) -> None:
    ran = run("sweep", "--max-seconds", seconds)

    assert (ran.code, "--max-seconds" in ran.err) == (2, True)
