"""What was recorded from NServiceBus: see fixtures/README.md."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from duesweep.message import MESSAGE_ID
from duesweep.testing.builders import DelayedRow

_FOLDER = Path(__file__).parent / "fixtures"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of a queue table, less its id, which is random."""

    headers: str
    body: bytes | None
    expires: datetime | None = None

    @property
    def message_id(self) -> str:
        """The NServiceBus message id."""
        return str(json.loads(self.headers)[MESSAGE_ID])


def delayed_rows() -> list[DelayedRow]:
    """The delayed table, in the order of Due."""
    return [
        DelayedRow(
            line["id"], line["headers"], _body(line["body"]), datetime.fromisoformat(line["due"])
        )
        for line in _lines("delayed")
    ]


def delivered_rows() -> dict[str, list[QueueRow]]:
    """The queue tables, by their names as the ledger writes them."""
    queues: dict[str, list[QueueRow]] = {}
    for line in _lines("delivered"):
        queues.setdefault(line["queue"], []).append(_queue_row(line))
    return queues


def error_row() -> QueueRow:
    """The only row of the error queue."""
    (line,) = _lines("error")
    return _queue_row(line)


@dataclass(frozen=True, slots=True)
class MsmqCase:
    """The headers of one message as the MSMQ transport stores them."""

    name: str
    to: str
    headers: dict[str, str | None]
    xml: bytes

    @property
    def message_headers(self) -> dict[str, str | None]:
        """As they are to be delivered: no dispatch properties, and line ends as XML has them."""
        return {
            name: value and value.replace("\r", "\n")
            for name, value in self.headers.items()
            if not name.startswith("NServiceBus.Timeouts.Properties.")
        }


def msmq_headers() -> list[MsmqCase]:
    """The headers of the MSMQ transport's delayed message store."""
    return [
        MsmqCase(line["name"], line["to"], line["headers"], base64.b64decode(line["xml"]))  # type: ignore[arg-type]
        for line in _lines("msmq_headers")
    ]


def _queue_row(line: dict[str, str]) -> QueueRow:
    return QueueRow(line["headers"], _body(line["body"]))


def _body(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _lines(name: str) -> list[dict[str, str]]:
    text = (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    # Not splitlines: a header may hold what Unicode calls a line's end.
    return [json.loads(line) for line in text.split("\n") if line]
