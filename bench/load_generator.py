"""Contender: RabbitMQ's own load generator, https://github.com/rabbitmq/rabbitmq-perf-test."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

_ROOT = Path(__file__).resolve().parent.parent
_COORDINATE = "com.rabbitmq:perf-test:2.22.1"
_FOLDER = _ROOT / ".cache" / "perf-test"
_RATE = re.compile(r"sending rate avg: (\d+) msg/s")


def publish(url: str, queue: str, count: int, size: int, *, headers: Mapping[str, str]) -> float:
    """Publish `count` persistent, mandatory messages with 2,000 confirms in flight. Returns its own
    figure, messages a second, which leaves out the start of its JVM.
    """
    properties = {"deliveryMode": "2", "contentType": "application/json", **headers}
    pairs = ",".join(f"{name}={value}" for name, value in properties.items())
    options = {
        **{"--queue": queue, "--size": size, "--message-properties": pairs},
        **{"--producers": 1, "--consumers": 0, "--confirm": 2_000, "--pmessages": count},
    }
    command = ["java", "-cp", _class_path(), "com.rabbitmq.perf.PerfTest", "--predeclared"]
    command += [text for option in options.items() for text in map(str, option)]
    command += ["--flag", "persistent", "--flag", "mandatory"]
    # A command line can be seen by everybody, and the URL has a password.
    environment = os.environ | {"RABBITMQ_PERF_TEST_ENV_PREFIX": "BENCH", "BENCH_URI": url}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = _RATE.search(done.stdout)
    if done.returncode or found is None:
        sys.exit(f"PerfTest ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return float(found[1])


def _class_path() -> str:
    """PerfTest's jars, fetched once; what Spark ships as well is taken from there."""
    if not (_FOLDER / "jars").is_dir():
        sys.path.insert(0, str(_ROOT / "scripts"))
        from renew_locks import resolve  # noqa: PLC0415 - starts a JVM

        resolve([_COORDINATE], _FOLDER)
    return f"{_FOLDER}/jars/*:{Path(pyspark.__file__).parent}/jars/*"
