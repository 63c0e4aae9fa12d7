"""The processes of a trial, as its harness sees them."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.trials.points import Plan
from support.trials.world import MOVED, SQL_SERVER, World

_SCRIPT = Path(__file__).with_name("sweep_command.py")
_MOVER = Path(__file__).parents[1] / "faults" / "mover.py"
_TESTS = Path(__file__).parents[2]
_LIBRARY = _TESTS.parent / "lib"
_WARM_SECONDS = 300
_POLL_SECONDS = 0.2
_ENDING_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended. `code` is negative after a signal, None if it had to be killed because
    it did not end. `document` is its output with `--json`.
    """

    code: int | None
    document: Mapping[str, Any] | None
    said: str


class SweepCommand:
    """`duesweep` in a process of its own."""

    def __init__(
        self, folder: Path, plan: Plan, arguments: Sequence[str], **environment: str
    ) -> None:
        self._output, self._said = folder / "stdout", folder / "stderr"
        with self._output.open("w") as output, self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), "once", plan.text(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=said,
                env=_environment() | environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> Ending:
        try:
            code: int | None = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            code = None
        return Ending(code, document_of(self._output.read_text()), self._said.read_text())


class SparkDriver:
    """A process with a warm Spark session, which runs one command after the other."""

    def __init__(self, folder: Path, master: str = "local[2,4]") -> None:
        self._said = folder / "spark-stderr"
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, str(_SCRIPT), "spark", master],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=_environment(),
                start_new_session=True,
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.is_warm = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def jvm(self) -> int:
        return jvm_of(self.pid)

    def await_warm(self) -> None:
        """Until its session is ready."""
        if not self.is_warm:
            assert self._lines.get(timeout=_WARM_SECONDS) == "ready", self._said.read_text()
            self.is_warm = True

    def start(self, plan: Plan, arguments: Sequence[str]) -> "SparkCommand":
        self.await_warm()
        assert self._process.stdin is not None
        said = self._said.stat().st_size
        self._process.stdin.write(
            json.dumps({"plan": json.loads(plan.text()), "arguments": list(arguments)}) + "\n"
        )
        self._process.stdin.flush()
        return SparkCommand(self, said)

    def end(self) -> None:
        """Kill it, and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        # Its children may end a little later, and hold its stdout until then.
        self._reader.join(_ENDING_SECONDS)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()

    def lines(self, seconds: float) -> tuple[int | None, str]:
        """The exit code of the command, and its output until then."""
        printed: list[str] = []
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                if self.is_alive:
                    continue
                # Its children may still hold its stdout.
                return self._process.returncode, "\n".join(printed)
            if line.startswith("="):
                return int(line[1:]), "\n".join(printed)
            printed.append(line)
        self.end()
        return None, "\n".join(printed)

    def said_since(self, size: int) -> str:
        """Its stderr after this many bytes."""
        return self._said.read_bytes()[size:].decode(errors="replace")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))


@dataclass(slots=True)
class SparkCommand:
    """A command on a warm session."""

    driver: SparkDriver
    said_before: int

    @property
    def pid(self) -> int:
        return self.driver.pid

    @property
    def is_over(self) -> bool:
        return not self.driver.is_alive

    def wait(self, seconds: float) -> Ending:
        code, printed = self.driver.lines(seconds)
        return Ending(code, document_of(printed), self.driver.said_since(self.said_before))


def start_mover(world: World) -> "subprocess.Popen[bytes]":
    """NServiceBus's mover on the endpoint's delayed table, until it is killed."""
    endpoint = world.endpoint
    moved = endpoint.server.quoted(endpoint.addresses.parse(MOVED))
    kind = "postgresql"
    if world.place == SQL_SERVER:
        kind = "sqlserver" if endpoint.server.stand_in is None else "stand-in"
    arguments = [kind, endpoint.dsn, endpoint.delayed, moved]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, str(_MOVER), *arguments], env=environment)


def jvm_of(driver: int) -> int:
    """The process of the JVM that a driver has started."""
    children = [
        int(child)
        for task in Path(f"/proc/{driver}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    (jvm,) = [child for child in children if "java" in Path(f"/proc/{child}/cmdline").read_text()]
    return jvm


def _environment() -> dict[str, str]:
    paths = f"{_LIBRARY}{os.pathsep}{_TESTS}"
    return os.environ | {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}


def document_of(printed: str) -> Mapping[str, Any] | None:
    """The last line that is a document, or None."""
    for line in reversed(printed.splitlines()):
        if line.startswith("{"):
            document: dict[str, Any] = json.loads(line)
            return document
    return None
