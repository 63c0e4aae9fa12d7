"""docs/operations.md: its commands are run, and print the outputs that the page shows.

With DUESWEEP_WRITE_PAGES=1 the page gets the outputs of today.
"""

import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from duesweep.cli.app import main
from duesweep.core.message import MESSAGE_ID
from duesweep.operations.command import given_by
from duesweep_testing.builders import DelayedRow, headers_text
from support import console_page
from support.endpoint import Endpoint

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
SOURCE = "nsb/public.Sales.Orders.Delayed"
TOMORROW = 86_400 + 3_600
# The table of a sweep's summary is long, and docs/exit-codes.md explains it.
_TABLE = re.compile(r"^  sweep id .*\n(?:  .*\n)*", re.MULTILINE)


@pytest.mark.usefixtures("no_spark_session")
def test_commands_print_what_the_page_shows(endpoint: Endpoint) -> None:
    console_page.compare(PAGE, _World(endpoint))


class _World:
    """The events between the commands, as the page names them."""

    def __init__(self, endpoint: Endpoint) -> None:
        queues = ("Billing", "Shipping", "Reminders.Mail")
        self.endpoint = endpoint.set_up(*queues, store__name=SOURCE)
        settings: dict[str, object] = {"store__name": SOURCE, "retry__max_attempts": 1}
        self.file = str(self.endpoint.config_file(**settings))

    def change(self, event: str) -> None:
        changes: dict[str, Callable[[], object]] = {
            "three messages for Billing are due, and the endpoint is paused": self._pause,
            "two messages for Shipping and one for Billing are due, and the queue Shipping is "
            "missing": self._break,
            "the queue Shipping is there again": lambda: self.endpoint.create_queue("Shipping"),
            "three reminders and one message for Billing come due tomorrow": self._remind,
            "two messages for Archive are exhausted, because its queue was missing; now the queue "
            "exists": self._fail,
        }
        changes[event]()

    def run(self, arguments: list[str]) -> str:
        """The output of a command, on standard output and standard error."""
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
