"""duesweep's whole sweep: in a warm session, in process, and from the shell."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import ROOT

import duesweep.sweep.spark as engine
import duesweep.sweep.sweep as pipeline
from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters.context import sweep_context
from duesweep.drivers.spark import spark_session
from duesweep.stores.sql_due import SqlDue

STAGES = ("plan", "dispatch", "settle")
# The functions that a sweep on Spark calls, and the stage of each.
STAGE_OF = {
    "settle_first": "settle",
    "plan": "plan",
    "run_slices": "dispatch",
    "settle_last": "settle",
}
ON_SPARK = ("--set", "sweep.spark_from=0")
IN_PROCESS = ("--set", "sweep.spark_from=100000000")


class WarmSession:
    """Sweeps in one Spark session."""

    def __init__(self) -> None:
        self._spark = spark_session(configuration.spark_start())
        self.spark_version = self._spark.version

    def sweep(self, config: Config) -> dict[str, float]:
        """Sweep once. Returns the seconds of each step in `STAGE_OF`."""
        context = sweep_context(config)
        with _measure_steps() as seconds:
            summary = pipeline.sweep(engine.SparkEngine(self._spark), context)
        if summary.outcome != "done":
            raise RuntimeError(f"the sweep ended as {summary.outcome}: {summary.reason}")
        return dict(seconds)


def shell_command() -> list[str]:
    """The program that runs duesweep: the command of the checkout, or this Python if the jars come
    from elsewhere.
    """
    if "DUESWEEP_JARS" in os.environ:
        return [sys.executable, "-m", "duesweep"]
    return [str(ROOT / "spark-submit.sh")]


def sweep_in_process(file: Path, *, at_once: int = 1) -> None:
    """`at_once` sweeps at the same time, each in a process of its own, without Spark, Python's
    start included.
    """
    command = [sys.executable, "-m", "duesweep", "sweep", "--config", str(file), "--json"]
    sweeps = [
        subprocess.Popen([*command, *IN_PROCESS], stdout=subprocess.PIPE) for _ in range(at_once)
    ]
    for sweep in sweeps:
        output, _ = sweep.communicate()
        outcome = json.loads(output)["outcome"]
        if sweep.returncode or outcome not in {"done", "idle"}:
            raise RuntimeError(f"a sweep in process ended with {sweep.returncode}, {outcome}")


@dataclass(frozen=True, slots=True)
class ShellRun:
    """One command, from the shell to its end: its output, seconds, seconds of CPU, megabytes at the
    peak of its own process, without a JVM.
    """

    output: dict[str, Any]
    seconds: float
    cpu: float
    peak_mb: float


def run_from_shell(
    command: list[str], *, watches_memory: bool = True, **environment: str
) -> ShellRun:
    """Run a command that prints a document. Raises if it fails. To watch the memory takes CPU of
    this process, which counts in a comparison.
    """
    started = time.monotonic()
    # Into a file: no process reads a pipe until the command has ended.
    with tempfile.TemporaryFile() as written:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=written, env=os.environ | environment
        )
        ended, peak = 0, 0.0
        while watches_memory and not ended:
            peak = _peak_mb(process.pid) or peak
            time.sleep(0.01)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if not ended:
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        written.seek(0)
        output = written.read()
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {output!r}")
    cpu = used.ru_utime + used.ru_stime
    return ShellRun(json.loads(output), round(seconds, 3), round(cpu, 3), peak)


def sweep_from_shell(
    file: Path, *options: str, watches_memory: bool = True, **environment: str
) -> ShellRun:
    """One sweep by the command line, with `environment` added to this process's own."""
    command = [*shell_command(), "sweep", "--json", "--config", str(file), *options]
    swept = run_from_shell(command, watches_memory=watches_memory, **environment)
    if swept.output["outcome"] != "done":
        raise RuntimeError(f"a sweep ended as {swept.output}")
    return swept


def _peak_mb(pid: int) -> float:
    """The peak since the process began its program; `ru_maxrss` would also count its parent's."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1_000
    return 0.0


@contextmanager
def _measure_steps() -> Iterator[dict[str, float]]:
    """Measure the steps of `STAGE_OF`, by wrapping them in the block."""
    seconds: dict[str, float] = defaultdict(float)

    def measure(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            started = time.monotonic()
            try:
                return function(*arguments, **named)
            finally:
                seconds[name] += time.monotonic() - started

        return wrapper

    places = (engine, pipeline, SqlDue)
    owners = {name: next(one for one in places if hasattr(one, name)) for name in STAGE_OF}
    originals = {name: getattr(owner, name) for name, owner in owners.items()}
    for name, function in originals.items():
        setattr(owners[name], name, measure(name, function))
    try:
        yield seconds
    finally:
        for name, function in originals.items():
            setattr(owners[name], name, function)
