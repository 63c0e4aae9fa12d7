"""Standard output that cannot be written, is closed, or whose reader has ended."""

import os
import shlex
import subprocess
import sys
from typing import Any

import pytest

from support.commands import ROOT
from support.endpoint import Endpoint

_SENTENCE = "duesweep: standard output cannot be written: No space left on device\n"


def _run(endpoint: Endpoint[Any], words: str, redirection: str) -> tuple[int, str]:
    """The exit code of a command with this redirection, and its standard error."""
    config = shlex.quote(str(endpoint.config_file()))
    python = f"PYTHONPATH={ROOT / 'lib'} {shlex.quote(sys.executable)} -m duesweep"
    options = "" if words.startswith("--") else f" --config {config}"
    done = subprocess.run(
        ["bash", "-c", f"{python} {words}{options} {redirection}; exit ${{PIPESTATUS[0]}}"],
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.fixture
def waiting(endpoint: Endpoint[Any]) -> Endpoint[Any]:
    """An endpoint with more messages than a pipe holds lines of."""
    endpoint.set_up("Billing").delay_many(2_000)
    return endpoint


@pytest.mark.parametrize("words", ["sweep", "sweep --json", "sweep --quiet"])
def test_sweep_has_moved_its_messages_and_monitoring_knows(
    words: str, waiting: Endpoint[Any]
) -> None:
    code, told = _run(
        waiting.having(metrics__textfile=str(waiting.folder / "m.prom")), words, ">/dev/full"
    )

    expected = (0, "") if "--quiet" in words else (4, _SENTENCE)
    assert (code, told, waiting.waiting()) == (*expected, [])
    assert "duesweep" in (waiting.folder / "m.prom").read_text()


def test_code_of_a_sweep_that_failed_stays(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up().delay("Nowhere")

    assert _run(endpoint, "sweep", ">/dev/full") == (3, _SENTENCE)


@pytest.mark.parametrize(
    "words", ["list", "list --json", "config", "doctor --no-spark", "--version"]
)
def test_command_says_so_in_one_sentence(words: str, endpoint: Endpoint[Any]) -> None:
    endpoint.set_up("Billing")

    assert _run(endpoint, words, ">/dev/full") == (4, _SENTENCE)


@pytest.mark.parametrize("words", ["list --limit 2000", "list --json --limit 2000", "config"])
def test_reader_that_has_enough_is_no_error(words: str, waiting: Endpoint[Any]) -> None:
    assert _run(waiting, words, "| head -n 0") == (0, "")


@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_output_stops_no_sweep(redirection: str, waiting: Endpoint[Any]) -> None:
    assert _run(waiting, "sweep", redirection) == (0, "")
    assert waiting.waiting() == []


def test_failure_is_told_although_its_document_is_not(endpoint: Endpoint[Any]) -> None:
    code, told = _run(endpoint, "list --json", ">/dev/full")

    assert (code, "Traceback" in told) == (2, False)
    assert told.endswith(_SENTENCE)


@pytest.mark.parametrize("redirection", [">&-", ">/dev/full"])
def test_message_that_cannot_be_printed_stays_in_its_queue(
    redirection: str, endpoint: Endpoint[Any]
) -> None:
    endpoint.set_up("Billing").delay()
    assert endpoint.run("sweep").code == 0

    code, told = _run(endpoint, "queue receive Billing", redirection)

    assert (code in {2, 4}, "Traceback" in told) == (True, False)
    assert len(endpoint.queue_rows("Billing")) == 1
