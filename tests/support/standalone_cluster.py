"""A Spark standalone cluster on loopback, from the `bin` of the installed PySpark."""

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from support.ports import free_port

# Neither the environment of the tests nor anything that they have set reaches a worker.
WORKER_PATH = "/usr/bin:/bin"
_START_SECONDS = 180
_STOP_SECONDS = 20
_LOOPBACK = "127.0.0.1"


@contextmanager
def standalone_cluster(workers: int = 2, *, cores: int = 1) -> Iterator[str]:
    """Start a master and `workers` of these cores and 1 GB each; yields the master's URL."""
    port, web_port = free_port(), free_port()
    url = f"spark://{_LOOPBACK}:{port}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duesweep-cluster-")))
        master = ("master.Master", "--port", str(port), "--webui-port", str(web_port))
        stack.enter_context(_daemon(folder / "master", *master))
        # A worker that comes before the master tries again only after ten seconds.
        _wait_for_workers(0, web_port, folder)
        for number in range(workers):
            home = folder / f"worker{number}"
            resources = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(home))
            worker = ("worker.Worker", "--webui-port", "0", *resources, url)
            stack.enter_context(_daemon(home, *worker))
        _wait_for_workers(workers, web_port, folder)
        yield url


@contextmanager
def _daemon(home: Path, name: str, *arguments: str) -> Iterator[None]:
    home.mkdir()
    spark_home = _spark_home()
    command = [spark_home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"]
    with (home / "log").open("wb") as log:
        # spark-class ends in `exec java`: the process is the daemon itself.
        process = subprocess.Popen(
            [*command, "--host", _LOOPBACK, *arguments],
            cwd=home,
            env={
                "PATH": WORKER_PATH,
                "JAVA_HOME": str(_java_home()),
                "SPARK_HOME": str(spark_home),
                "SPARK_LOCAL_IP": _LOOPBACK,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_workers(workers: int, web_port: int, folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with (
            suppress(OSError),
            urllib.request.urlopen(f"http://{_LOOPBACK}:{web_port}/json/") as answer,
        ):
            if json.load(answer)["aliveworkers"] == workers:
                return
        time.sleep(0.2)
    logs = "\n".join(log.read_text() for log in sorted(folder.glob("*/log")))
    raise TimeoutError(
        f"{workers} workers did not register in {_START_SECONDS} s; their logs:\n{logs}"
    )


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("PySpark is not installed here: run the tests with tests/run.")
    return Path(spec.origin).parent


def _java_home() -> Path:
    if "JAVA_HOME" in os.environ:
        return Path(os.environ["JAVA_HOME"])
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("Java is not on the PATH: a cluster needs Java 17 or 21.")
    return Path(java).resolve().parent.parent
