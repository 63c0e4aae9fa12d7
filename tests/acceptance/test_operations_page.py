"""docs/operations.md, from top to bottom: its commands are run, and print what the page shows.

With DUESWEEP_WRITE_PAGES=1 the page gets what they print now.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from duesweep.cli.app import main
from duesweep.core.message import MESSAGE_ID
from duesweep.operations.change import given_by
from duesweep_testing.builders import DelayedRow, headers_text
from support.endpoint import Endpoint

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
_PART = re.compile(r"<!-- world: (.+?) -->|```console\n(.*?)```", re.DOTALL)
SOURCE = "nsb/public.Sales.Orders.Delayed"
TOMORROW = 86_400 + 3_600
# The table of a sweep's summary is long, and docs/exit-codes.md explains it.
_TABLE = re.compile(r"^  sweep id .*\n(?:  .*\n)*", re.MULTILINE)
# Values that differ from run to run, and their placeholders.
_VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-(?!0{11})[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?( UTC)?"), "TIME"),
    (re.compile(r"\d[\d,.]* (ms|s|min|h|d)\b( \d+ (ms|s|min|h)\b)?"), "DURATION"),
    (re.compile(r"\d[\d,.]* rows/s"), "RATE"),
    (re.compile(r"\b[0-9a-f]{8}\b"), "GROUP"),
)


@pytest.mark.usefixtures("no_spark_session")
def test_commands_print_what_the_page_shows(endpoint: Endpoint) -> None:
    text = PAGE.read_text(encoding="utf-8")
    world = _World(endpoint)

    shown = _PART.sub(lambda part: _run_part(world, part), text)

    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        PAGE.write_text(shown, encoding="utf-8")
    assert _comparable(shown) == _comparable(text)


class _World:
    """What happens between the commands, by the page's own words for it."""

    def __init__(self, endpoint: Endpoint) -> None:
        queues = ("Billing", "Shipping", "Reminders.Mail")
        self.endpoint = endpoint.set_up(*queues, store__name=SOURCE)
        settings: dict[str, object] = {"store__name": SOURCE, "retry__max_attempts": 1}
        self.file = str(self.endpoint.config_file(**settings))

    def change(self, what: str) -> None:
        changes: dict[str, Callable[[], object]] = {
            "three messages for Billing are due, and the endpoint is paused": self._pause,
            "two messages for Shipping and one for Billing are due, and the queue Shipping is "
            "missing": self._break,
            "the queue Shipping is there again": lambda: self.endpoint.create_queue("Shipping"),
            "three reminders and one message for Billing come due tomorrow": self._remind,
            "two messages for Archive are exhausted, because its queue was missing; now the queue "
            "exists": self._fail,
        }
        changes[what]()

    def run(self, arguments: list[str]) -> str:
        """What a command prints, on standard output and standard error."""
        printed = StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            main([*arguments, "--config", self.file])
        return _TABLE.sub("…\n", printed.getvalue()).replace(given_by(), "ops@host")

    def _store(self, numbers: range, destination: str, due_in_seconds: float = -60) -> None:
        due = self.endpoint.due_in(due_in_seconds)
        keys = [f"22222222-0000-4000-8000-{number:012}" for number in numbers]
        ids = [f"11111111-0000-4000-8000-{number:012}" for number in numbers]
        self.endpoint.load(
            DelayedRow(key, headers_text(destination, {MESSAGE_ID: one}), b"{}", due)
            for key, one in zip(keys, ids, strict=True)
        )

    def _pause(self) -> None:
        self._store(range(7, 10), "Billing")
        self.run(["pause", "*", "--reason", "INC-16: the database is moved"])

    def _break(self) -> None:
        self._store(range(10, 12), "Shipping")
        self._store(range(1, 2), "Billing")
        queue = self.endpoint.server.sql(self.endpoint.schema, "Shipping")
        self.endpoint.execute(f"DROP TABLE {queue}")

    def _remind(self) -> None:
        self._store(range(3, 6), "Reminders.Mail", TOMORROW)
        self._store(range(6, 7), "Billing", TOMORROW)

    def _fail(self) -> None:
        self._store(range(12, 14), "Archive")
        self.run(["sweep"])
        self.endpoint.create_queue("Archive")


def _run_part(world: _World, part: re.Match[str]) -> str:
    if part[1] is not None:
        world.change(" ".join(part[1].split()))
        return part[0]
    commands = [line for line in part[2].splitlines() if line.startswith("$ ")]
    lines = [line for command in commands for line in _shown(world, command)]
    return "```console\n" + "".join(f"{line}\n" for line in lines) + "```"


def _shown(world: _World, command: str) -> Iterator[str]:
    yield command
    _, name, *arguments = shlex.split(command)
    assert name == "duesweep"
    yield from (line.rstrip() for line in world.run(arguments).rstrip("\n").splitlines())


def _comparable(text: str) -> list[str]:
    """The text's lines without values that differ from run to run and without a table's widths."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return [" ".join(line.split()) for line in text.splitlines()]
