"""A signal may come at any moment, also while Python still imports modules."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.endpoint import Endpoint

_ROOT = Path(__file__).parents[2]


def _heeds_signals(process: "subprocess.Popen[str]") -> bool:
    """Whether duesweep's own code runs. Before that, Python starts, and a signal does what it does
    to any program.
    """
    status = Path(f"/proc/{process.pid}/status").read_text()
    (caught,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def _signalled(command: Sequence[str], number: int, seconds: float) -> tuple[int, str, str] | None:
    """The exit code, stdout and stderr of a command that gets a signal after so many seconds; None:
    Python was still starting.
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
    [(signal.SIGTERM, {0, 4}, 50), (signal.SIGINT, {0, 130}, 125)],
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
                # Two within 0.3 s count as one.
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.5)
                process.terminate()
                out, _ = process.communicate(timeout=60)

    assert json.loads(out)["exit_code"] == process.returncode == 4
