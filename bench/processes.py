"""Plain processes that wait for "go". A job has a dsn, so it comes by stdin, which nobody sees."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Job = Mapping[str, Any]
PLAIN = "--plain"


class Processes:
    """One process a job, each running `script` with `PLAIN`, and ready. `run` is measured."""

    def __init__(self, script: Path, jobs: Sequence[Job]) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, str(script), PLAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in jobs
        ]
        for process, job in zip(self._processes, jobs, strict=True):
            _send(process, json.dumps(job))
            assert process.stdout is not None
            process.stdout.readline()

    def run(self) -> None:
        """Let the processes work. Raises if one of them failed."""
        for process in self._processes:
            _send(process, "go")
        for process in self._processes:
            if process.wait():
                raise subprocess.CalledProcessError(process.returncode, process.args)


def serve(prepare: Callable[[Job], Callable[[], None]]) -> int:
    """Be one of the processes: prepare the job, say so, and do it at "go"."""
    work = prepare(json.loads(sys.stdin.readline()))
    print("ready", flush=True)
    if not sys.stdin.readline():
        return 1  # the comparison was interrupted
    work()
    return 0


def _send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
