"""Recordings from NServiceBus: see fixtures/README.md."""

import base64
import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from duesweep.core.headers import write_json
from duesweep.core.message import MESSAGE_ID, TIME_TO_BE_RECEIVED, Message
from duesweep_testing.builders import DelayedRow

_FOLDER = Path(__file__).parents[1] / "fixtures"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A row of a queue table, less its id, which is random."""

    headers: str
    body: bytes | None
    expires: datetime | None = None

    @property
    def message_id(self) -> str:
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
        MsmqCase(line["name"], line["to"], line["headers"], base64.b64decode(line["xml"]))
        for line in _lines("msmq_headers")
    ]


def _queue_row(line: dict[str, str]) -> QueueRow:
    return QueueRow(line["headers"], _body(line["body"]))


def _body(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _lines(name: str) -> list[dict[str, Any]]:
    text = (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8")
    # Not splitlines: a header may hold what Unicode calls a line's end.
    return [json.loads(line) for line in text.split("\n") if line]


@dataclass(frozen=True, slots=True)
class Case:
    """A message as it was given to the transports."""

    name: str
    to: str
    delay_ms: int
    time_to_be_received_s: int | None
    headers: dict[str, str | None]
    body: bytes

    @property
    def conversation_id(self) -> str | None:
        """What tells the cases apart in every recording."""
        return self.headers["NServiceBus.ConversationId"]

    def message(self, due_us: int | None = None) -> Message:
        """As a store would hand it over. A time to be received is a header then, as NServiceBus's
        core writes it.
        """
        headers = dict(self.headers)
        if self.time_to_be_received_s is not None:
            headers[TIME_TO_BE_RECEIVED] = str(timedelta(seconds=self.time_to_be_received_s)).zfill(
                8
            )
        text = write_json(headers)
        key = str(uuid.uuid4())
        return Message(key, due_us, headers, text, self.body, self.to, instant_us=due_us)


def cases() -> list[Case]:
    return [
        Case(
            line["name"],
            line["to"],
            line["delay_ms"],
            line.get("ttbr_s"),
            line["headers"],
            base64.b64decode(line["body"]),
        )
        for line in _lines("cases")
    ]


@dataclass(frozen=True, slots=True)
class BrokerMessage:
    """A message as it lay in a queue of RabbitMQ. `headers` are without what broker and client add
    (`x-…`); `properties` are the others.
    """

    queue: str
    exchange: str
    routing_key: str
    properties: dict[str, object]
    headers: dict[str, object]
    body: bytes


def broker_messages() -> list[BrokerMessage]:
    """What NServiceBus published."""
    return [_broker_message(line) for line in _lines("rabbitmq/messages")]


def migrated_messages() -> list[BrokerMessage]:
    """What NServiceBus's own `delays migrate` made of messages on the first delay ladder."""
    return [_broker_message(line) for line in _lines("rabbitmq/migrated")]


def broker_definitions() -> dict[str, list[dict[str, object]]]:
    """Exchanges, queues and bindings as NServiceBus declares them."""
    text = (_FOLDER / "rabbitmq" / "definitions.json").read_text(encoding="utf-8")
    definitions: dict[str, list[dict[str, object]]] = json.loads(text)
    return definitions


def _broker_message(line: dict[str, Any]) -> BrokerMessage:
    properties = dict(line["properties"])
    headers = {
        # The management API writes a void so.
        name: None if value == "undefined" else value
        for name, value in properties.pop("headers", {}).items()
        if not name.startswith("x-")
    }
    return BrokerMessage(
        line.get("queue", ""),
        line["exchange"],
        line["routing_key"],
        properties,
        headers,
        base64.b64decode(line["payload"]),
    )
