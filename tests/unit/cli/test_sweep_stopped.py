"""A sweep that is stopped before it begins."""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from duesweep.api.look import Look
from duesweep.cli import sweep as command
from duesweep.cli.app import main

_SETTINGS = (
    "store.dsn=postgresql://sweeper@db.example/nsb",
    "store.endpoint=Sales.Orders",
    "ledger.root=/tmp/ledger",
)
_ARGUMENTS = ["sweep", "--json", *(part for s in _SETTINGS for part in ("--set", s))]


@pytest.fixture(autouse=True)
def _no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> int:
        raise AssertionError("it began")

    monkeypatch.setattr(command, "_sweep", fail)
    monkeypatch.setattr(command, "_run_spark_command", fail)


def _find(monkeypatch: pytest.MonkeyPatch, look: Look, first: Callable[[], Any] = bool) -> None:
    def look_at(*_: object) -> Look:
        first()
        return look

    monkeypatch.setattr(command, "look_at", look_at)


@pytest.mark.parametrize("needs_spark", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_before_the_sweep_begins_is_a_stop(
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    needs_spark: bool,
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    look = Look(has_work=True, needs_spark=needs_spark, notices=())
    _find(monkeypatch, look, lambda: os.kill(os.getpid(), number))

    assert main([*_ARGUMENTS, "--gate"]) == 0

    signal.signal(signal.SIGINT, before)
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["exit_code"], told["error"]) == ("stopped", 0, None)
    assert (told["sweep_id"], told["dispatched"]) == (None, 0)


def test_time_counts_from_the_start_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUESWEEP_STARTED", "1000.5")
    _find(monkeypatch, Look(has_work=True, needs_spark=False, notices=()))

    assert main([*_ARGUMENTS, "--max-seconds", "60"]) == 0

    assert json.loads(capsys.readouterr().out)["outcome"] == "stopped"


def test_store_without_work_is_idle_whenever_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUESWEEP_STARTED", "1000.5")
    _find(monkeypatch, Look(has_work=False, needs_spark=False, notices=()))

    assert main([*_ARGUMENTS, "--max-seconds", "60"]) == 0

    assert json.loads(capsys.readouterr().out)["outcome"] == "idle"


@pytest.mark.parametrize("seconds", ["0", "-1", "604801", "1.5"])
def test_time_that_makes_no_sense_is_refused(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_ARGUMENTS, "--max-seconds", seconds]) == 2

    assert "--max-seconds" in capsys.readouterr().err
