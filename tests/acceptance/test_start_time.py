"""What a command loads before it does anything: cron starts one each minute."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import duesweep
from support.endpoint import ON_BOTH_SERVERS, Endpoint

# Each takes from a tenth of a second to several seconds.
SLOW = {
    *("deltalake", "duesweep.doctor", "jinja2", "opentelemetry", "pika", "psycopg", "pyarrow"),
    *("pygal", "pyodbc", "pyspark", "urllib.request"),
}
DRIVER = {"postgresql": {"psycopg"}, "sqlserver": {"pyodbc"}}


def loaded(*arguments: str) -> set[str]:
    """The slow modules that a command loads in a new interpreter; it has to end with 0."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "duesweep", *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(duesweep.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    modules = set(re.findall(r"^import time:.*\|\s+(\S+)$", done.stderr, re.MULTILINE))
    assert "duesweep.cli.app" in modules
    return SLOW & modules


@pytest.mark.parametrize("command", [[], ["sweep"], ["list"]], ids=" ".join)
def test_help_loads_nothing_slow(command: list[str]) -> None:
    assert loaded(*command, "--help") == set()


@ON_BOTH_SERVERS
@pytest.mark.parametrize("command", ["sweep", "list"])
def test_command_without_work_loads_its_stores_driver_only(
    endpoint: Endpoint[Any], command: str
) -> None:
    endpoint.set_up()

    assert loaded(command, "--config", str(endpoint.config_file())) == DRIVER[endpoint.kind]


def test_queues_of_rabbitmq_bring_its_driver_and_nothing_else(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up()
    file = endpoint.config_file(queues__default__kind="rabbitmq", queues__default__url="amqp://b")

    assert loaded("list", "--config", str(file)) == {"pika", "psycopg"}
