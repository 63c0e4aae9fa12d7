"""The parts that are commands of their own: tests, trials, the benchmark."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from proof.sqlserver.evidence import Figures

ROOT = Path(__file__).parents[2]
_SERVER, _OPTIONS = "DUESWEEP_TEST_SQLSERVER", "DUESWEEP_TEST_SQLSERVER_OPTIONS"
_LAST_LINES = 30
_MOST_NAMED = 40
_ENDING_SECONDS = 60


def run_tests(
    title: str, dsn: str, options: Sequence[str], arguments: Sequence[str], *, seconds: float
) -> Figures:
    """Tests in databases with these options. Stops them after `seconds`."""
    report = ROOT / "build" / "sqlserver-tests.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    command += [f"--junit-xml={report}", "-o", "junit_logging=no"]
    code, output = _run(command, {_SERVER: dsn, _OPTIONS: ";".join(options)}, seconds)
    if not report.exists():
        return Figures(title, _failed(command, code, output), is_good=False)
    text = results_of(report.read_text("utf-8"))
    if code is None:
        text = f"Stopped after {seconds / 60:.0f} minutes; until then: {text}"
    return Figures(title, text, is_good=code == 0)


def results_of(report: str) -> str:
    """The numbers of a report in JUnit's format, and its first failed tests. One that fails in its
    set-up and at its end counts once.
    """
    failed: dict[str, str] = {}
    tests, skipped = set(), set()
    for case in ET.fromstring(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        tests.add(name)
        if case.find("skipped") is not None:
            skipped.add(name)
        for fault in [*case.findall("failure"), *case.findall("error")]:
            failed.setdefault(name, " ".join(str(fault.get("message")).split())[:200])
    passed = tests - skipped - failed.keys()
    told = [f"{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped.\n"]
    told += [f"- `{name}`: {reason}" for name, reason in list(failed.items())[:_MOST_NAMED]]
    if len(failed) > _MOST_NAMED:
        told.append(f"- and {len(failed) - _MOST_NAMED} more")
    return "\n".join(told)


def run_trials(dsn: str, runs: int, *, seconds: float) -> Figures:
    """Sweeps with faults, and NServiceBus's mover next to some of them."""
    command = [sys.executable, str(ROOT / "bench" / "faults.py"), "--place", "SQL Server"]
    command += ["--runs", str(runs)]
    code, output = _run(command, {_SERVER: dsn}, seconds)
    told = output.partition("| fault |")
    text = told[1] + told[2] if told[2] else ""
    if code is None or not text:
        text = _failed(command, code, output)
    return Figures(f"{runs} trials", text, is_good=code == 0)


def run_benchmark(dsn: str, rows: int, *, seconds: float) -> Figures:
    """Messages a second, next to two plain processes."""
    title = f"Benchmark, {rows:,} messages"
    command = [sys.executable, str(ROOT / "bench"), "sqlserver", "--no-table"]
    command += ["--rows", str(rows), "--rounds", "2"]
    code, output = _run(command, {_SERVER: dsn}, seconds)
    if code != 0:
        return Figures(title, _failed(command, code, output), is_good=False)
    content = json.loads((ROOT / "bench" / "results" / "sqlserver.json").read_text("utf-8"))
    lines = ["| contender | rows/s, by round | of the peer | faults |", "|---|---|---|---|"]
    for one in content["figures"]:
        rates = ", ".join(f"{rate:,}" for rate in one["values"])
        lines.append(f"| {one['name']} | {rates} | {one['ratio']} | {one['faults']} |")
    machine = content["machine"]
    lines.append(f"\n{machine['cores']} cores, load {machine['load']}.")
    return Figures(title, "\n".join(lines), is_good=True)


def _run(
    command: Sequence[str], environment: Mapping[str, str], seconds: float
) -> tuple[int | None, str]:
    """The exit code, None if it had to be stopped, and the output."""
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("lib", "tests", "bench"))
    _fetch_jars()
    jars = {"DUESWEEP_JARS": str(ROOT / ".cache" / "jars"), "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**jars, **os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=max(1.0, seconds))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
            try:
                output, _ = process.communicate(timeout=_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
            return None, output
        return process.returncode, output


@cache
def _fetch_jars() -> None:
    """Sessions of Spark need them. A command without them says so itself."""
    command = [sys.executable, "-P", "-m", "duesweep.drivers.spark_start"]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "lib"}, check=False)


def _failed(command: Sequence[str], code: int | None, output: str) -> str:
    ended = "was stopped for want of time" if code is None else f"ended with {code}"
    last = "\n".join(output.strip().splitlines()[-_LAST_LINES:])
    name = " ".join(Path(word).name if "/" in word else word for word in command[1:])
    return f"`{name}` {ended}.\n\n```\n{last}\n```"
