"""Who is told what a watcher does: its log, its health, systemd and the helper on Spark."""

import json
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from duesweep.errors import ConfigError, StoreError
from duesweep.telemetry.run import Due
from duesweep.testing.memory import MemoryStore
from duesweep.watch.health import Health, HealthFile
from duesweep.watch.helper import Helper
from duesweep.watch.log import Log
from duesweep.watch.metrics import FiguresFile, Metrics, metrics_page
from duesweep.watch.server import Page, json_page, serving
from duesweep.watch.systemd import Systemd
from duesweep.watch.tick import Tick
from support.ticks import IDLE, MOVED, REPORT, UNREACHED, UNWRITTEN
from support.waiting import until

_MUCH = Tick(REPORT, is_much=True)


def test_log_tells_sums_and_not_each_sweep() -> None:
    log = Log("nsb")
    with capture_logs() as lines:
        log.ticked(MOVED)
        log.ticked(Tick(replace(REPORT, failed=2, lateness_max_ms=900)))
        log.ticked(Tick())
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
            log.failed(UNREACHED)
        log.ticked(UNWRITTEN)
        log.ticked(MOVED)

    assert [line["event"] for line in lines] == ["trouble", "trouble", "trouble_is_over"]
    assert [line.get("error") for line in lines[:2]] == ["no server answers", "the disk is full"]


def test_health_is_bad_only_when_no_tick_ended_well_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = 1_000.0
    monkeypatch.setattr("duesweep.watch.health.time.monotonic", lambda: now)
    file = tmp_path / "health"
    health = Health("nsb", 5)
    touched = HealthFile(file, [health])

    health.ticked(MOVED)
    now += 124
    health.failed(UNREACHED)

    touched.failed(UNREACHED)
    assert not file.exists()
    assert health.is_well
    assert health.document()["error"] == "no server answers"
    now += 2
    assert not health.is_well
    touched.ticked(MOVED)
    assert not file.exists()
    health.ticked(MOVED)
    assert (health.is_well, health.document()["dispatched"]) == (True, 6)
    assert health.document()["error"] is None
    touched.ticked(MOVED)
    assert file.exists()


def test_health_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with capture_logs() as lines:
        HealthFile(tmp_path / "gone" / "health", [Health("nsb", 5)]).ticked(MOVED)

    assert [line["event"] for line in lines] == ["health_file_failed"]


def test_systemd_is_told_of_ready_of_each_tick_of_errors_and_of_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
        received.bind(address)
        received.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        systemd = Systemd()
        systemd.ticked(MOVED)
        systemd.ticked(MOVED)
        systemd.failed(StoreError("no\nserver", transient=True))
        systemd.close()
        told = [received.recv(1_000).decode() for _ in range(5)]

    assert told[0].startswith("READY=1\nSTATUS=")
    assert told[1:3] == ["WATCHDOG=1"] * 2
    # One line: a line break would begin another assignment.
    assert told[3].splitlines() == ["WATCHDOG=1", r"STATUS=no\nserver"]
    assert told[4] == "STOPPING=1"


def test_without_systemd_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("it opened a socket"))

    Systemd().ticked(MOVED)


def test_helper_runs_once_while_much_is_due_and_again_after_it_ended(tmp_path: Path) -> None:
    helper = Helper(_note(tmp_path))

    helper.ticked(MOVED)
    assert _runs(tmp_path) == 0
    with capture_logs() as lines:
        for expected in (1, 2):
            until(lambda wanted=expected: _ticked(helper, tmp_path) == wanted, 60)
    helper.close()

    assert [line["event"] for line in lines[:2]] == ["spark_started", "spark_ended"]


def test_helper_that_fails_is_told_and_not_started_again_at_once(tmp_path: Path) -> None:
    helper = Helper(_note(tmp_path, "; sys.exit(3)"))

    with capture_logs() as lines:
        until(lambda: _ticked(helper, tmp_path) and "spark_failed" in str(lines), 60)
        helper.ticked(_MUCH)
    helper.close()

    assert _runs(tmp_path) == 1
    assert lines[-1]["reason"] == "exit code 3"


def test_helper_is_stopped_with_the_watcher(tmp_path: Path) -> None:
    helper = Helper(_note(tmp_path, "; import time; time.sleep(600)"))
    helper.ticked(_MUCH)
    until(lambda: _runs(tmp_path) == 1, 60)
    assert helper.is_running

    helper.close()

    assert not helper.is_running


def test_helper_that_cannot_be_started_is_told() -> None:
    with capture_logs() as lines:
        Helper(["/nonexistent/python"]).ticked(_MUCH)

    assert [line["event"] for line in lines] == ["spark_failed"]


def test_port_serves_pages_and_says_which_there_are() -> None:
    bad = json_page({"is_well": False}, HTTPStatus.SERVICE_UNAVAILABLE)
    pages = {"/health": lambda: bad, "/": lambda: Page(b"<p>", "text/html")}
    with serving("127.0.0.1", 0, pages) as port:
        assert _get(port, "/?x=1") == (200, "text/html", b"<p>")
        assert _get(port, "/health") == (503, "application/json", b'{"is_well": false}\n')
        status, _, body = _get(port, "/nowhere")
        assert (status, b"/health" in body) == (404, True)
        with (
            pytest.raises(ConfigError, match=f"Port {port} of 127.0.0.1 cannot"),
            serving("127.0.0.1", port, pages),
        ):
            pass


def _get(port: int, path: str) -> tuple[int, str | None, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read()


def _note(folder: Path, then: str = "") -> list[str]:
    """A command that makes a file in `folder` each time, and `then` goes on."""
    new = f"import sys, uuid, pathlib; pathlib.Path({json.dumps(str(folder))}, uuid.uuid4().hex)"
    return [sys.executable, "-c", f"{new}.touch(){then}"]


def _runs(folder: Path) -> int:
    return len(list(folder.iterdir()))


def _ticked(helper: Helper, folder: Path) -> int:
    helper.ticked(_MUCH)
    return _runs(folder)


def _scraped(watched: Sequence[Metrics], file: Path) -> dict[str, float]:
    page = metrics_page(watched, file)
    families = text_string_to_metric_families(page.body.decode())
    return {s.name.removeprefix("duesweep_"): s.value for f in families for s in f.samples}


def test_scrape_finds_the_ticks_of_the_watcher_and_of_its_helper(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("duesweep.watch.metrics.look_at_due", lambda _: Due(4, 2.5))
    metrics, file = Metrics(MemoryStore()), tmp_path / "helper.prom"
    metrics.ticked(replace(MOVED, seconds=0.5))
    metrics.ticked(IDLE)
    assert _scraped([metrics], file)["dispatched_messages_total"] == 3
    helper = FiguresFile("memory", file)
    helper.ticked(MOVED)
    # The next helper goes on from there.
    FiguresFile("memory", file).ticked(MOVED)
    helper.failed(UNREACHED)

    scraped = _scraped([metrics], file)

    assert (scraped["dispatched_messages_total"], scraped["runs_total"]) == (9, 5)
    # An idle tick does not hide how late the sweep before it was.
    assert (scraped["run_exit_code"], scraped["lateness_max_seconds"]) == (0, 0.007)
    assert (scraped["due_messages"], scraped["oldest_due_age_seconds"]) == (4, 2.5)
    metrics.failed(UNREACHED)
    scraped = _scraped([metrics], file)
    assert scraped["run_exit_code"] == 4
    assert "due_messages" not in scraped
