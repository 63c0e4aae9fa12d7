"""A signal may come at any moment, also while Python still imports modules."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "codes"), [(signal.SIGTERM, {0, 4}), (signal.SIGINT, {0, 130})], ids=["TERM", "INT"]
)
def test_signal_at_any_moment_of_a_sweep_is_one_sentence_and_one_document(
    endpoint: Endpoint, number: int, codes: set[int]
) -> None:
    endpoint.set_up("Billing")
    command = ["sweep", "--json", "--config", str(endpoint.config_file())]
    ends = [_signalled(command, number, step / 50) for step in range(50)]

    heeded = [end for end in ends if end is not None]
    assert len(heeded) > len(ends) / 2
    for code, out, err in heeded:
        assert code in codes, err
        assert json.loads(out)["exit_code"] == code
        assert "Traceback" not in err
        assert len(err.splitlines()) <= 2, err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_signal_at_any_moment_of_a_watcher_ends_it(endpoint: Endpoint, number: int) -> None:
    endpoint.set_up("Billing")
    command = ["watch", "--config", str(endpoint.config_file())]
    ends = [_signalled(command, number, step / 50) for step in range(0, 50, 4)]

    for code, _, err in filter(None, ends):
        assert code in {0, 4, 130}, err
        assert "Traceback" not in err
