"""Sweeps in processes of their own, to be raced and killed."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("sweep_process.py")
_TESTS = Path(__file__).parents[2]
_PATHS = f"{_TESTS.parent / 'lib'}{os.pathsep}{_TESTS}"


@dataclass
class SweepProcess:
    """One sweep, ready to go."""

    process: subprocess.Popen[str]

    @classmethod
    def start(
        cls, master: str, moment: str, batch: int, config: Path, *overrides: str
    ) -> "SweepProcess":
        """Start it; it waits for `go`."""
        arguments = [master, moment, str(batch), str(config), *overrides]
        process = subprocess.Popen(
            [sys.executable, str(_SCRIPT), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": _PATHS, "PYSPARK_PYTHON": sys.executable},
            start_new_session=True,
        )
        return cls(process)

    def await_ready(self) -> None:
        """Until Spark is warm."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Begin the sweep."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def summary(self) -> dict[str, Any]:
        """Its summary, when it has ended."""
        output, _ = self.process.communicate(timeout=600)
        summary: dict[str, Any] = json.loads(output)
        return summary | {"exit_code": self.process.returncode}

    def kill(self) -> None:
        """SIGKILL to all of it: Python, JVM, workers."""
        os.killpg(self.process.pid, 9)
        self.process.communicate(timeout=180)
