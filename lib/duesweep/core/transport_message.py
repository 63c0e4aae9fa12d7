"""Messages as the transports' own operations send and receive them."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from duesweep.core import duration
from duesweep.core.headers import json as headers_json
from duesweep.core.message import Headers
from duesweep.errors import ConfigError, MessageError, UnreadableHeadersError

TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What is to be sent: at once, or with a `delay` later, through the delayed table. What is not
    received within `time_to_be_received` expires; None: never.

    Raises `ConfigError` for a delay together with a time to be received, as the transports do, and
    for times that are negative or too long.
    """

    headers: Headers
    body: bytes | None
    time_to_be_received: timedelta | None = None
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.time_to_be_received is not None:
            raise ConfigError(
                "A message with a time to be received cannot be sent later: the transports take "
                "no delay for it",
                advice="leave one of the two out",
            )
        if self.delay is not None:
            duration.checked(self.delay)
        if self.time_to_be_received is not None:
            duration.checked(self.time_to_be_received)
            if self.time_to_be_received < timedelta(milliseconds=1):
                raise ConfigError(
                    "A message with a time to be received under 1 ms would expire before anybody "
                    "could receive it",
                    advice="give it more, or leave it out",
                )


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A row that was received: `headers` parsed or, where they cannot be read, the reason;
    `headers_text` as it lay there.
    """

    id: UUID
    headers: Headers | MessageError
    headers_text: str
    body: bytes | None

    @classmethod
    def read(cls, message_id: UUID, headers_text: str, body: bytes | None) -> "ReceivedMessage":
        """The message of a row. As in the transports, an empty text is no headers, and readable."""
        headers: Headers | MessageError
        try:
            headers = headers_json.read(headers_text) if headers_text else {}
        except UnreadableHeadersError as error:
            headers = error
        return cls(message_id, headers, headers_text, body)

    @property
    def is_poison(self) -> bool:
        """Whether the headers cannot be read."""
        return isinstance(self.headers, MessageError)

    @property
    def forward_destination(self) -> str | None:
        """Where a message that was delayed is to go on to; None: nowhere else."""
        return self._header(headers_json.FORWARD_DESTINATION)

    @property
    def time_to_be_received(self) -> timedelta | None:
        """What the sender's header says of it; None where it says nothing."""
        return duration.read_time_span(self._header(TIME_TO_BE_RECEIVED))

    def _header(self, name: str) -> str | None:
        return None if isinstance(self.headers, MessageError) else self.headers.get(name)
