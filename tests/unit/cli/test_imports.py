"""The question whether there is work imports nothing slow: cron asks it every minute."""

import subprocess
import sys
from pathlib import Path

import pytest

import duesweep

SLOW = {"pyarrow", "pyodbc", "pyspark", "psycopg", "duesweep.doctor"}


def _imported(statement: str) -> set[str]:
    """The slow modules that a statement imports in a new Python process."""
    return SLOW & _modules(statement)


def _modules(statement: str) -> set[str]:
    """All modules that a statement imports in a new Python process."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(duesweep.__file__).parents[1],
    )
    return set(done.stdout.split())


def test_wiring_imports_nothing_that_is_slow() -> None:
    assert _imported("import duesweep.wiring") == set()


@pytest.mark.parametrize(
    ("dialect", "drivers"), [("postgresql", {"psycopg"}), ("sqlserver", set())]
)
def test_dialect_imports_its_own_driver_at_most_and_nothing_else_that_is_slow(
    dialect: str, drivers: set[str]
) -> None:
    assert _imported(f"import duesweep.wiring.{dialect}") == drivers


def test_command_line_imports_nothing_that_is_slow() -> None:
    assert _imported("import duesweep.cli.app, duesweep.cli.sweep") == set()


def test_publishing_to_rabbitmq_does_not_import_what_only_the_migration_needs() -> None:
    exact = "duesweep.drivers.rabbitmq.exact"

    assert exact not in _modules("import duesweep.queues.rabbitmq.queue")
    assert exact in _modules("import duesweep.queues.rabbitmq.migration.migrate")


def test_publishing_to_rabbitmq_does_not_import_http() -> None:
    assert "urllib.request" not in _modules("import duesweep.queues.rabbitmq.queue")
