"""The place of a trial: an endpoint's store and its queues."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.trials.messages import Expected, Kind, identity, write

ONE_DATABASE = "PostgreSQL, one transaction"
OTHER_DATABASE = "PostgreSQL, queue with its own dsn"
BROKER = "PostgreSQL, queue on RabbitMQ"
SQL_SERVER = "SQL Server, one transaction"
POOLED = "PostgreSQL, behind a pooler"
PLACES = (ONE_DATABASE, OTHER_DATABASE, BROKER, SQL_SERVER, POOLED)
SHARED_TRANSACTION = {ONE_DATABASE, SQL_SERVER, POOLED}

NAMES = ("Billing", "Shipping", "Ship.ping")
ERROR_QUEUE = "error"
# The endpoint's input queue, as its own mover knows it.
MOVED = "Moved"
OTHER_QUEUES = (ERROR_QUEUE, MOVED)


@dataclass(frozen=True, slots=True)
class Copy:
    """A message in a queue. `headers` None: they are not compared."""

    identity: str
    body: bytes | None
    headers: Mapping[str, str | None] | None = None


@dataclass
class World:
    """`settings` are for the queues. `read_queue` takes all that is in a queue, by address.
    `make_refuse` has queue Shipping refuse some messages; None: it cannot.
    """

    place: str
    endpoint: Endpoint[Any]
    settings: dict[str, object]
    read_queue: Callable[[str | None], Sequence[Copy]]
    make_refuse: Callable[[], object] | None = None
    expected: list[Expected] = field(default_factory=list)
    # Its folder, once it is not next to the configuration.
    ledger_root: Path | None = None

    @property
    def destinations(self) -> tuple[str | None, ...]:
        return (*NAMES, None)

    @property
    def ledger(self) -> LedgerReader:
        return LedgerReader(self.ledger_root or self.endpoint.folder / "ledger")

    def load_one(self) -> None:
        """Store a message that is delivered before the trial."""
        row = delayed_row("Billing", body=b"first", due=self.endpoint.due_in(-60))
        (stored,) = self.endpoint.load([row])
        self.expected.append(Expected(stored, Kind.GOOD, "Billing"))

    def load(self, rng: random.Random, *, has_bad: bool) -> None:
        if has_bad and self.make_refuse is not None:
            self.make_refuse()
        written = write(
            rng,
            self.destinations,
            now=self.endpoint.due_in(0),
            has_bad=has_bad,
            refuses=self.make_refuse is not None,
        )
        rows = self.endpoint.load([one.row for one in written])
        self.expected += [
            Expected(row, one.kind, one.queue) for row, one in zip(rows, written, strict=True)
        ]
        known = {one.identity for one in self.expected}
        assert len(known) == len(self.expected)

    def waiting_good(self) -> set[str]:
        """The keys of messages that a sweep should have delivered, and that are in the store."""
        good = {one.row.key for one in self.expected if one.kind is Kind.GOOD}
        return good & set(self.endpoint.waiting())

    def unsettled(self) -> int:
        """How many rows the journal and the table of sweeps have."""
        return sum(
            len(self.endpoint.fetch(f"SELECT * FROM {self.endpoint.own_table(name)}"))
            for name in ("journal", "sweeps")
        )


def table_copies(endpoint: Endpoint[Any]) -> Callable[[str | None], Sequence[Copy]]:
    """Reads queue tables next to an endpoint's."""

    def read(address: str | None) -> Sequence[Copy]:
        rows = endpoint.server.queue_rows(endpoint.addresses.parse(address))
        return [Copy(identity(r.headers, r.body), r.body, _read_headers(r.headers)) for r in rows]

    return read


def _read_headers(text: str) -> dict[str, Any]:
    """None, if they cannot be read: NServiceBus's mover also moves such a message."""
    try:
        headers: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return headers


def refuse_in_table(endpoint: Endpoint[Any], condition: str) -> Callable[[], object]:
    def refuse() -> None:
        table = endpoint.server.quoted(endpoint.addresses.parse("Shipping"))
        endpoint.execute(f"ALTER TABLE {table} ADD CONSTRAINT wanted CHECK ({condition})")

    return refuse
