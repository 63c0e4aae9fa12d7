"""A sweep that is stopped before it begins."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from support.commands import run
from support.endpoint import Endpoint
from support.waiting import until


@contextmanager
def signal_during_the_look(endpoint: Endpoint, number: signal.Signals) -> Iterator[None]:
    """Whoever reads the delayed table in the block waits until this process has got a signal."""
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
        told = endpoint.document("sweep", "--gate", sweep__spark_from=spark_from)

    assert (told["outcome"], told["exit_code"], told["error"]) == ("stopped", 0, None)
    assert (told["sweep_id"], told["dispatched"]) == (None, 0)
    assert len(endpoint.waiting()) == 1


@pytest.mark.parametrize(("due_in_seconds", "outcome"), [(-60, "stopped"), (3_600, "idle")])
def test_time_counts_from_the_start_of_the_command(
    due_in_seconds: float, outcome: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay(due_in_seconds=due_in_seconds)
    # The shell says when it began. Starting Spark takes a while.
    monkeypatch.setenv("DUESWEEP_STARTED", "1000.5")

    assert endpoint.document("sweep", "--max-seconds", "60")["outcome"] == outcome
    assert len(endpoint.waiting()) == 1


@pytest.mark.parametrize("seconds", ["0", "-1", "604801", "1.5"])
def test_time_that_makes_no_sense_is_refused(seconds: str) -> None:
    ran = run("sweep", "--max-seconds", seconds)

    assert (ran.code, "--max-seconds" in ran.err) == (2, True)
