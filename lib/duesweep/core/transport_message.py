"""Messages as the transports' own operations send and receive them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from duesweep.core import duration
from duesweep.core.errors import ConfigError, MessageError, UnreadableHeadersError
from duesweep.core.headers import json as headers_json
from duesweep.core.message import Headers

TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send: at once, or after `delay` through the delayed table (on RabbitMQ, through
    the delay ladder). A message that is not received within `time_to_be_received` expires; None:
    never.

    Raises `ConfigError` for both a delay and a time to be received, as the transports do, and for
    times that are negative or too long.
    """

    headers: Headers
    body: bytes | None
    time_to_be_received: timedelta | None = None
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.time_to_be_received is not None:
            raise ConfigError(
                "A message cannot have both a delay and a time to be received: the transports "
                "refuse that",
                advice="leave one of the two out",
            )
        if self.delay is not None:
            duration.check_length(self.delay)
        if self.time_to_be_received is not None:
            duration.check_length(self.time_to_be_received)
            if self.time_to_be_received < timedelta(milliseconds=1):
                raise ConfigError(
                    "A message with a time to be received below 1 ms would expire before anybody "
                    "could receive it",
                    advice="give a longer time, or leave it out",
                )


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A row that was received. `headers` are parsed; if they cannot be read, they are the reason.
    `headers_text` is the stored text.
    """

    id: UUID
    headers: Headers | MessageError
    headers_text: str
    body: bytes | None

    @classmethod
    def read(
        cls,
        message_id: UUID,
        headers_text: str,
        body: bytes | None,
        columns: Mapping[str, str | None] | None = None,
    ) -> "ReceivedMessage":
        """The message of a row. As in the transports, empty text means no headers, not a fault.
        `columns` are headers that the row has as columns: they fill what the headers lack.
        """
        headers: Headers | MessageError
        try:
            headers = headers_json.read(headers_text) if headers_text else {}
        except UnreadableHeadersError as error:
            headers = error
        else:
            headers = _fill(headers, columns or {})
        return cls(message_id, headers, headers_text, body)

    @property
    def is_poison(self) -> bool:
        """Whether the headers cannot be read."""
        return isinstance(self.headers, MessageError)

    @property
    def forward_destination(self) -> str | None:
        """Where a delayed message goes next; None: nowhere."""
        return self._header(headers_json.FORWARD_DESTINATION)

    @property
    def time_to_be_received(self) -> timedelta | None:
        """The time to be received in the sender's header; None if there is none."""
        return duration.read_time_span(self._header(TIME_TO_BE_RECEIVED))

    def _header(self, name: str) -> str | None:
        return None if isinstance(self.headers, MessageError) else self.headers.get(name)


def _fill(headers: Headers, columns: Mapping[str, str | None]) -> Headers:
    """`headers`, and at their end the filled columns that they lack."""
    lacking = {
        name: value for name, value in columns.items() if value and headers.get(name) is None
    }
    return {**headers, **lacking} if lacking else headers
