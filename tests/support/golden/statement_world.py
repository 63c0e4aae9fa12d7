"""What commands do with an endpoint, so that each of their statements is sent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep.config.adapters.context import sweep_context
from duesweep.core.message import MESSAGE_ID
from duesweep_testing.builders import DelayedRow, headers_text
from duesweep_transport.messages import one_message_at_a_time
from support.commands import run
from support.endpoint import Endpoint

# Of every sweep: three batches of ten in one slice, whose statements come in one order.
SETTINGS: Mapping[str, object] = {
    "store__name": "nsb/Sales.Orders.Delayed",
    "sweep__batch_rows": 10,
    "sweep__slices": 1,
    "retry__initial_seconds": 600,
}
MESSAGES = 30
TOMORROW = 86_400
LIMIT = '[[limit]]\ndestination = "Shipping"\nper_second = 1000\n'
EXHAUSTING: Mapping[str, object] = {"retry__max_attempts": 1, "retry__error_queue": "error"}
BECAUSE = ("--reason", "INC-1", "--yes")


@dataclass
class World:
    """An endpoint with the queues Billing, Shipping and error. `settings` and `tables` are more of
    its configuration.
    """

    endpoint: Endpoint[Any]
    settings: Mapping[str, object] = field(default_factory=dict)
    tables: str = ""
    stored: int = 0

    @classmethod
    def of(cls, endpoint: Endpoint[Any], **settings: object) -> "World":
        """With all its tables."""
        return cls(endpoint.set_up("Billing", "Shipping", "error", **SETTINGS), settings)

    def store(
        self,
        count: int,
        destination: str | None = "Billing",
        *,
        due_in_seconds: float = -60,
        headers: str | None = None,
    ) -> Sequence[str]:
        """Store messages whose ids are numbers. Returns their keys."""
        due = self.endpoint.due_in(due_in_seconds)
        rows = []
        for number in range(self.stored + 1, self.stored + count + 1):
            message_id = f"11111111-0000-4000-8000-{number:012}"
            text = headers or headers_text(destination, {MESSAGE_ID: message_id})
            rows.append(DelayedRow(f"22222222-0000-4000-8000-{number:012}", text, b"{}", due))
        self.stored += count
        return [row.key for row in self.endpoint.load(rows)]

    def config_file(self, **overrides: object) -> Path:
        file = self.endpoint.config_file(**SETTINGS, **self.settings, **overrides)
        file.write_text(file.read_text(encoding="utf-8") + self.tables, encoding="utf-8")
        return file

    def run(self, *arguments: str, code: int = 0, **overrides: object) -> None:
        ran = run(*arguments, "--config", str(self.config_file(**overrides)))
        assert ran.code == code, ran.told


@dataclass(frozen=True)
class Form:
    """A sweep that does its batches in another way. `prepare` stores its messages."""

    prepare: Callable[[World], object]
    settings: Mapping[str, object] = field(default_factory=dict)
    tables: str = ""
    code: int = 0


def _some_unreadable(world: World) -> None:
    world.store(MESSAGES - 1)
    world.store(1, headers="no headers")


def _some_without_a_queue(world: World) -> None:
    world.store(MESSAGES - 2)
    world.store(2, "Missing")


def _some_failed_before(world: World) -> None:
    world.store(2, "Missing")
    world.run("sweep", code=3)
    world.endpoint.end_back_off()
    world.endpoint.create_queue("Missing")
    world.store(MESSAGES)


def _some_in_back_off(world: World) -> None:
    world.store(2, "Missing")
    world.run("sweep", code=3)
    world.store(MESSAGES)


def _some_paused(world: World) -> None:
    world.run("pause", "Shipping", "--reason", "INC-1")
    _to_two_queues(world)


def _to_two_queues(world: World) -> None:
    world.store(MESSAGES)
    world.store(2, "Shipping")


def _to_three_queues(world: World) -> None:
    for address in ("Billing", "Shipping", None):
        world.store(5, address)


FORMS: Mapping[str, Form] = {
    "idle": Form(lambda _: None),
    "usual": Form(lambda world: world.store(MESSAGES)),
    "to_three_queues": Form(_to_three_queues),
    "unreadable": Form(_some_unreadable, code=3),
    "exhausted": Form(_some_without_a_queue, EXHAUSTING, code=3),
    "failed_before": Form(_some_failed_before),
    "in_back_off": Form(_some_in_back_off),
    "paused": Form(_some_paused),
    "limit": Form(_to_two_queues, tables=LIMIT),
}


def run_form(world: World, form: Form) -> None:
    world.tables = form.tables
    world.run("sweep", code=form.code, **form.settings)


def sweep(world: World) -> None:
    """Sweeps in all forms, and with more counters than are read at once."""
    world.store(MESSAGES)
    world.store(2, "Shipping")
    world.store(3, "Missing")
    world.store(1, headers="no headers")
    world.run("pause", "Shipping", "--reason", "INC-1", "--until", "+1d")
    world.run("paused")
    world.run("sweep", "--max-messages", "20")
    world.run("sweep", code=3)
    world.run("resume", "Shipping")
    world.run("list", "--failing")
    world.endpoint.end_back_off()
    world.store(1)
    world.tables = LIMIT
    metrics = str(world.endpoint.folder / "x.prom")
    world.run("sweep", code=3, metrics__textfile=metrics, **EXHAUSTING)
    world.tables = ""
    failed = world.store(101, "Missing")
    world.store(1)
    world.run("sweep", code=3)
    world.run("reschedule", failed[0], "--to", "+1d")
    world.store(1)
    world.run("sweep")
    world.run("cancel", "--destination", "Missing", *BECAUSE)
    world.run("sweep")


def look(world: World) -> None:
    later = world.store(6, "Shipping", due_in_seconds=TOMORROW)
    world.run("list", "--json")
    world.run("list", "--count", "--destination", "Shipping")
    world.run("show", later[0])
    world.run("plan")
    world.run("report", "--out", str(world.endpoint.folder / "page.html"))
    world.run("doctor", "--no-spark")


def change(world: World) -> None:
    later = world.store(6, "Shipping", due_in_seconds=TOMORROW)
    world.run("cancel", *later[:2], *BECAUSE)
    world.run("reschedule", *later[3:5], "--by", "1h", *BECAUSE)
    world.run("restore", *later[:2], *BECAUSE)


def replay(world: World) -> None:
    """After `sweep`: exhausted messages."""
    world.endpoint.create_queue("Missing")
    world.run("errors", "list", "--json")
    world.run("errors", "replay", "--destination", "Missing", *BECAUSE)
    # One has unreadable headers.
    world.run("errors", "replay", "--all", "--due", "+1d", *BECAUSE, code=3)


def use_queues(world: World) -> None:
    """The transport's own operations."""
    world.run("queue", "create", "Own")
    world.run("queue", "send", "Own", "--body", "{}")
    world.run("queue", "send", "Own", "--body", "{}", "--delay", "1d")
    world.run("queue", "peek", "Own")
    world.run("queue", "receive", "Own")
    world.run("queue", "purge-expired", "Own")
    world.run("queue", "purge", "Own", "--yes")
    # `setup` has created it.
    endpoint = world.endpoint
    endpoint.execute(f"DROP TABLE {endpoint.server.sql(endpoint.schema, 'SubscriptionRouting')}")
    world.run("subscriptions", "create")
    world.run("subscriptions", "add", "Sales.Cancelled", "Billing", "--subscriber", "Billing")
    world.run("subscriptions", "list", "Sales.Cancelled")
    world.run("subscriptions", "remove", "Sales.Cancelled", "--subscriber", "Billing")


def use_messages(world: World) -> None:
    """The store's contract for one message at a time, which no command uses."""
    world.store(2)
    store = sweep_context(configuration.load(world.config_file())).store
    with one_message_at_a_time(store) as session, session.transaction():
        for use in (session.raise_failure_count, session.remove):
            message = session.fetch_next_due()
            assert message is not None
            use(message)


def tidy_up(world: World) -> None:
    """Upkeep, another ledger, and a source whose table is gone."""
    world.run("audit")
    world.run("maintain")
    world.run("setup", "--rebind", ledger__root=str(world.endpoint.folder / "other"))
    gone = world.endpoint.server.sql(world.endpoint.schema, "Old.Delayed")
    world.endpoint.execute(
        f"INSERT INTO {world.endpoint.own_table('bindings')} (source, delayed, ledger_id)"
        f" VALUES ('Old', '{gone}', '33333333-0000-4000-8000-000000000000')"
    )
    world.run("maintain", "--forget", "Old")
