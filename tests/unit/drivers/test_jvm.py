"""The JVM's start: Spark's own command, without the module that not every Java has."""

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from duesweep.core.errors import SparkError
from duesweep.drivers import jvm
from duesweep.drivers.jvm import start_jvm

# The launcher prints a command of this program; that command writes the file, and says words.
_JAVA = """#!{python}
import os, sys
words = sys.argv[1:]
assert os.environ["SPARK_SCALA_VERSION"] == "2.13", os.environ
if "org.apache.spark.launcher.Main" in words:
    rest = words[words.index("org.apache.spark.launcher.Main") + 1 :]
    told = [sys.argv[0], "--add-modules=jdk.incubator.vector", "-Dx=a b", *rest]
    print("\\0")
    print("".join(word + "\\0" for word in told))
    sys.exit({launcher})
print("Picked up JAVA_TOOL_OPTIONS: -Dx", file=sys.stderr)
print("heard", *words, sep="|", file=sys.stderr, flush=True)
print("Deleted 3 files and directories in a total of 1 directories.")
print("printed", flush=True)
{then}
"""
_LISTENS = """
file = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(file + ".tmp", "wb") as told:
    told.write((4711).to_bytes(4, "big") + (6).to_bytes(4, "big") + b"s3cret")
os.rename(file + ".tmp", file)
sys.stdin.read()
"""
_ENDS = """
print("Exception in thread \\"main\\" java.lang.Error: it broke", file=sys.stderr)
print("\\tat a.b.C", file=sys.stderr)
print("Caused by: java.io.IOException: no room", file=sys.stderr)
print("\\tat a.b.D", file=sys.stderr)
sys.exit(1)
"""
_REFUSES = """
print("Error occurred during initialization of boot layer", file=sys.stderr)
print("java.lang.module.FindException: Module x not found", file=sys.stderr)
sys.exit(1)
"""
_TOO_SMALL = """
print("Error occurred during initialization of VM")
print("Too small maximum heap")
sys.exit(1)
"""
_KILLED = "os.kill(os.getpid(), 9)"


@pytest.fixture
def java(tmp_path: Path) -> Callable[..., Path]:
    """Makes a program that does `then`."""

    def make(then: str, launcher: int = 0) -> Path:
        program = tmp_path / "java home" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(_JAVA.format(python=sys.executable, then=then, launcher=launcher))
        program.chmod(stat.S_IRWXU)
        return program

    return make


def test_command_of_sparks_launcher_is_run_without_the_vector_module(
    java: Callable[..., Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    started = start_jvm(
        java(_LISTENS), tmp_path, ["--name", "a b"], {"SPARK_LOCAL_IP": "127.0.0.1"}
    )

    assert (started.port, started.secret) == (4711, "s3cret")
    # The file had the secret.
    assert list((tmp_path / "tmp").iterdir()) == []
    assert os.getpgid(started.process.pid) == started.process.pid
    assert started.process.stdin is not None
    # The JVM ends with this process.
    started.process.stdin.close()
    assert started.process.wait(20) == 0
    heard = "heard|-Dx=a b|org.apache.spark.deploy.SparkSubmit|--name|a b\n"
    # The command's own document is all of its stdout.
    assert capfd.readouterr() == ("", f"{heard}printed\n")


@pytest.mark.parametrize(
    ("then", "launcher", "says", "passes"),
    [
        (_ENDS, 0, "Spark's JVM ended at its start: IOException: no room", False),
        (_REFUSES, 0, "Spark's JVM ended at its start: FindException: Module x", False),
        (_TOO_SMALL, 0, "Spark's JVM ended at its start: Too small maximum heap; corr", False),
        ("sys.exit(0)", 0, "Spark's JVM ended at its start: printed", False),
        (_KILLED, 0, "Spark's JVM ended at its start: printed", True),
        ("", 3, "Spark's launcher failed: it said nothing", False),
    ],
)
def test_jvm_that_does_not_start_is_told_by_its_deepest_cause(
    then: str, launcher: int, says: str, java: Callable[..., Path], tmp_path: Path, *, passes: bool
) -> None:
    with pytest.raises(SparkError) as caught:
        start_jvm(java(then, launcher), tmp_path, [], {})

    assert str(caught.value).startswith(says)
    assert caught.value.transient is passes


def test_launcher_that_hangs_ends_the_start(
    java: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_LAUNCHER_SECONDS", 0.5)
    program = java("")
    program.write_text("#!/bin/sh\nexec sleep 60\n")

    with pytest.raises(SparkError, match="launcher has not answered") as caught:
        start_jvm(program, tmp_path, [], {})

    assert caught.value.transient
