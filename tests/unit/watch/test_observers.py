"""The observers of a watcher: its log, its health, and systemd."""

import http.client
import os
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from duesweep.cli.port import Page, json_page, serving
from duesweep.core.account import BreakerReport, SweepReport
from duesweep.core.errors import ConfigError, StoreError
from duesweep.core.world import Waits
from duesweep.operations.health import Health, HealthFile, Systemd
from duesweep.operations.look import StillDue
from duesweep.operations.run import Run, failed_run
from duesweep.operations.watch import Log
from duesweep.report.metrics import Metrics, exposed_text
from duesweep_testing.memory import MemoryStore
from support.reports import (
    FAILED,
    IDLE,
    MOVED,
    NOTHING,
    NOW,
    REPORT,
    UNWRITTEN,
)
from support.waiting import until

BREAKER = BreakerReport("Billing@db", "open", "2026-11-23T12:00:00+00:00", 5.0, 3, "it is full")


def test_run_that_was_stopped_before_it_began_has_not_caught_up() -> None:
    outcomes = ("idle", "stopped", "error")

    assert [Run("nsb", one).is_caught_up for one in outcomes] == [True, False, False]


def test_log_tells_sums_and_not_each_sweep() -> None:
    log = Log("nsb")
    with capture_logs() as lines:
        log(MOVED)
        log(replace(MOVED, report=replace(REPORT, failed=2, lateness_max_ms=900)))
        log(NOTHING)
        assert lines == []
        log.close()
        log.close()

    [line] = lines
    assert (line["event"], line["sweeps"], line["dispatched"]) == ("swept", 2, 6)
    assert (line["failed"], line["lateness_max_ms"]) == (2, 900)


def test_log_tells_an_error_once_and_that_it_is_over() -> None:
    log = Log("nsb")
    with capture_logs() as lines:
        for _ in range(3):
            log(FAILED)
        log(MOVED)

    assert [line["event"] for line in lines] == ["trouble", "trouble_is_over"]
    assert [line.get("error") for line in lines[:2]] == ["no server answers", None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What `time.monotonic()` says there."""
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_health_is_bad_without_a_good_tick_for_the_longest_wait_and_ten_seconds(
    clock: list[float], tmp_path: Path
) -> None:
    file = tmp_path / "health"
    health = Health("nsb", 5)
    touched = HealthFile(file, [health])

    assert not health.is_well
    health(FAILED)
    assert not health.is_well
    health(MOVED)
    clock[0] += 15
    health(FAILED)

    touched(FAILED)
    assert not file.exists()
    assert health.is_well
    assert health.document()["error"] == "no server answers"
    clock[0] += 1
    assert not health.is_well
    touched(MOVED)
    assert not file.exists()
    health(MOVED)
    assert (health.is_well, health.document()["dispatched"]) == (True, 6)
    assert health.document()["error"] is None
    touched(MOVED)
    assert file.exists()
    health.end()
    assert not health.is_well


def test_health_is_good_in_a_long_tick_for_as_long_as_batches_are_committed(
    clock: list[float],
) -> None:
    waits = Waits()
    health = Health("nsb", 5, waits)
    health(IDLE)
    for _ in range(10):
        clock[0] += 10
        waits.progressed()
    assert health.is_well
    assert health.document()["behind_seconds"] == 100

    clock[0] += 11

    assert not health.is_well
    # It found the messages due at its beginning, which is long ago.
    health(replace(MOVED, seconds=111))
    assert not health.is_well


def test_long_run_that_ends_well_does_not_undo_a_later_good_tick(clock: list[float]) -> None:
    """Such as the run of a sweep on Spark, which counts from its start."""
    health = Health("nsb", 5)
    health(MOVED)
    clock[0] += 5

    health(replace(MOVED, seconds=600))

    assert health.is_well
    assert health.document()["behind_seconds"] == 5


@pytest.mark.parametrize(
    ("report", "is_well"),
    [
        (replace(REPORT, left=3), False),
        (replace(REPORT, skipped=3), False),
        (replace(REPORT, left=3, breakers=(BREAKER,)), True),
        (replace(REPORT, left=4, breakers=(BREAKER,)), False),
        (replace(REPORT, left=3, breakers=(replace(BREAKER, state="closed"),)), False),
        (replace(REPORT, held=3, failed=3, eligible_later=3), True),
    ],
    ids=["left", "locked by others", "open breaker", "more", "closed breaker", "held or failed"],
)
def test_health_is_bad_while_messages_stay_that_could_leave(
    clock: list[float], report: SweepReport, *, is_well: bool
) -> None:
    health = Health("nsb", 5)
    for _ in range(4):
        health(replace(MOVED, report=report))
        clock[0] += 5

    assert health.is_well is is_well


def test_health_tells_why_the_ledger_has_not_got_all() -> None:
    health = Health("nsb", 5)

    health(UNWRITTEN)

    assert (health.is_well, health.document()["error"]) == (True, "the disk is full")


def test_long_wait_is_told_once_with_its_end_and_shown(clock: list[float]) -> None:
    waits = Waits()
    log, health = Log("nsb", waits), Health("nsb", 5, waits)
    with capture_logs() as lines:
        waits.begin("ledger lock", "process 7 holds it")
        clock[0] += 1
        log.look()
        assert (lines, health.document()["waiting"]) == ([], [])
        clock[0] += 2
        waits.begin("ledger lock", "process 8 holds it")
        log.look()
        log.look()
        [shown] = health.document()["waiting"]
        waits.end("ledger lock")
        log.look()
        log.look()

    assert shown == {"for": "ledger lock", "seconds": 3.0, "reason": "process 8 holds it"}
    assert [line["event"] for line in lines] == ["waiting", "waited"]
    assert (lines[0]["reason"], lines[1]["seconds"]) == ("process 8 holds it", 3.0)


def test_health_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = HealthFile(folder / "health", [])
    folder.rmdir()

    with capture_logs() as lines:
        for _ in range(3):
            file(MOVED)
        folder.mkdir()
        for _ in range(3):
            file(MOVED)
        (folder / "health").unlink()
        folder.rmdir()
        file(MOVED)

    events = ["health_file_failed", "health_file_written", "health_file_failed"]
    assert [line["event"] for line in lines] == events


def test_health_file_that_cannot_be_written_at_the_start_is_refused(tmp_path: Path) -> None:
    for file in (tmp_path / "gone" / "health", Path("/proc/health")):
        with pytest.raises(ConfigError, match="The health file"):
            HealthFile(file, [])


def test_health_file_is_no_sign_of_health_before_a_good_tick(tmp_path: Path) -> None:
    file, old = tmp_path / "health", tmp_path / "old"
    old.touch()
    os.utime(old, (0, 0))

    HealthFile(file, [])
    HealthFile(old, [])

    assert (file.exists(), old.stat().st_mtime) == (False, 0)


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[socket.socket]:
    """Its socket, which the environment names."""
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(address)
        received.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield received


def test_systemd_is_told_of_ready_of_each_tick_of_errors_and_of_the_end(
    systemd: socket.socket,
) -> None:
    observer = Systemd([Health("nsb", 5)])
    observer(MOVED)
    observer(MOVED)
    observer(failed_run("nsb", StoreError("no\nserver", transient=True)))
    observer.close()

    first, *ticks, error, last = [systemd.recv(1_000).decode() for _ in range(5)]
    assert first.startswith("READY=1\nSTATUS=")
    assert ticks == ["WATCHDOG=1"] * 2
    # One line: a line break would begin another assignment.
    assert error.splitlines() == ["WATCHDOG=1", r"STATUS=no\nserver"]
    assert last == "STOPPING=1"


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("it opened a socket"))

    Systemd([])(MOVED)


def test_one_of_several_that_hangs_is_not_hidden_from_systemd_by_the_others(
    systemd: socket.socket, clock: list[float]
) -> None:
    healths = [Health("living", 5), Health("hanging", 5)]
    observer = Systemd(healths)
    clock[0] += 120
    healths[0](MOVED)
    observer(FAILED)
    # One that has ended does not hang.
    healths[1].end()
    observer(FAILED)

    told = [systemd.recv(1_000).decode() for _ in range(2)]
    assert ["WATCHDOG=1" in each for each in told] == [False, True]


def test_port_serves_pages_and_says_which_there_are() -> None:
    bad = json_page({"is_well": False}, HTTPStatus.SERVICE_UNAVAILABLE)
    pages = {"/health": lambda: bad, "/": lambda: Page(b"<p>", "text/html")}
    with serving("127.0.0.1", 0, pages) as port:
        assert _get(port, "/?x=1") == (200, "text/html", b"<p>")
        assert _get(port, "/health") == (503, "application/json", b'{"is_well": false}\n')
        assert _get(port, "/health", "HEAD") == (503, "application/json", b"")
        status, _, body = _get(port, "/nowhere")
        assert (status, b"/health" in body) == (404, True)
        with (
            pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 is in use"),
            serving("127.0.0.1", port, pages),
        ):
            pass


def test_client_that_hangs_up_leaves_no_trace_and_a_page_that_fails_does(
    capfd: pytest.CaptureFixture[str],
) -> None:
    asked, is_gone = threading.Event(), threading.Event()

    def slow() -> Page:
        asked.set()
        assert is_gone.wait(60)
        return Page(b"-" * 10_000_000, "text/plain")

    def failing() -> Page:
        raise ValueError("a defect")

    pages = {"/": slow, "/failing": failing}
    with capture_logs() as lines, serving("127.0.0.1", 0, pages) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
            # It resets the connection, and does not only end it.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        is_gone.set()
        until(
            lambda: not [each for each in threading.enumerate() if "process_request" in each.name]
        )
        assert (lines, capfd.readouterr().err) == ([], "")
        with pytest.raises(http.client.RemoteDisconnected):
            _get(port, "/failing")
        until(lambda: lines)

    assert lines[0]["event"] == "page_failed"


def _get(port: int, path: str, method: str = "GET") -> tuple[int, str | None, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def _scraped(watched: Sequence[Metrics]) -> dict[str, float]:
    families = text_string_to_metric_families(exposed_text(watched).decode())
    return {s.name.removeprefix("duesweep_"): s.value for f in families for s in f.samples}


def test_scrape_finds_the_ticks_of_the_watcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.report.metrics.look_at_due", lambda _: StillDue(4, 2.5))
    metrics = Metrics(MemoryStore())
    metrics(replace(MOVED, seconds=0.5))
    metrics(IDLE)
    assert _scraped([metrics])["dispatched_messages_total"] == 3
    metrics(MOVED)
    metrics(IDLE)

    scraped = _scraped([metrics])

    assert (scraped["dispatched_messages_total"], scraped["runs_total"]) == (6, 4)
    # An idle tick does not hide how late the sweep before it was.
    assert (scraped["run_exit_code"], scraped["lateness_max_seconds"]) == (0, 0.007)
    assert scraped["due_messages"] == 4
    # It has grown since it was looked for.
    assert 2.5 < scraped["oldest_due_age_seconds"] < 60
    metrics(FAILED)
    scraped = _scraped([metrics])
    assert scraped["run_exit_code"] == 4
    assert "due_messages" not in scraped
    assert scraped["oldest_due_age_seconds"] > 2.5


def test_scrape_tells_when_a_tick_last_ended_well_from_the_start_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duesweep.report.metrics.look_at_due", lambda _: None)
    before = time.time()
    metrics = Metrics(MemoryStore())
    assert before <= _scraped([metrics])["last_good_tick_timestamp_seconds"] <= time.time()

    metrics(replace(IDLE, ended=NOW))
    metrics(replace(FAILED, ended=NOW + timedelta(seconds=30)))

    assert _scraped([metrics])["last_good_tick_timestamp_seconds"] == NOW.timestamp()


def test_scrape_tells_the_worst_lateness_of_the_last_minute(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duesweep.report.metrics.look_at_due", lambda _: None)
    metrics = Metrics(MemoryStore())
    metrics(replace(MOVED, report=replace(REPORT, lateness_max_ms=9_000)))
    clock[0] += 30
    metrics(replace(MOVED, report=replace(REPORT, lateness_max_ms=None)))
    metrics(MOVED)
    assert _scraped([metrics])["lateness_max_seconds"] == 9

    clock[0] += 31
    metrics(IDLE)

    assert _scraped([metrics])["lateness_max_seconds"] == 0.007


def test_scrape_asks_no_store_and_its_age_grows_when_the_next_message_is_not_taken(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = "duesweep.report.metrics.look_at_due"
    monkeypatch.setattr(look, lambda _: StillDue(0, 0.0))
    metrics = Metrics(MemoryStore())
    metrics(IDLE)
    monkeypatch.setattr(look, lambda _: pytest.fail("it asked the store"))

    assert _scraped([metrics])["oldest_due_age_seconds"] == 0
    clock[0] += 0.5 + 7
    assert _scraped([metrics])["oldest_due_age_seconds"] == 7


def test_scrape_tells_for_how_long_a_watcher_has_waited(clock: list[float]) -> None:
    metrics = Metrics(MemoryStore())
    with metrics.waits.waiting("ledger lock", "process 7 holds it"):
        clock[0] += 3
        page = exposed_text([metrics]).decode()

    assert 'duesweep_waiting_seconds{for="ledger lock",source="memory"} 3.0' in page.splitlines()
    assert "waiting_seconds" not in _scraped([metrics])
