"""Messages and durations as the transports' own operations send and receive them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from duesweep.core.errors import ConfigError, MessageError, UnreadableHeadersError
from duesweep.core.headers import FORWARD_DESTINATION, Headers, read_json
from duesweep.core.message import TIME_TO_BE_RECEIVED
from duesweep.core.times import check_duration, read_time_span

_MILLISECOND = timedelta(milliseconds=1)


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
            check_duration(self.delay)
        if self.time_to_be_received is not None:
            check_duration(self.time_to_be_received)
            if self.time_to_be_received < timedelta(milliseconds=1):
                raise ConfigError(
                    "A message with a time to be received below 1 ms would expire before its "
                    "receiver could read it",
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
        `columns` are headers that the row has as columns: they add missing headers.
        """
        headers: Headers | MessageError
        try:
            headers = read_json(headers_text) if headers_text else {}
        except UnreadableHeadersError as error:
            headers = error
        else:
            # At the end.
            filled = {name: value for name, value in (columns or {}).items() if value}
            lacking = {name: filled[name] for name in filled if headers.get(name) is None}
            headers = {**headers, **lacking}
        return cls(message_id, headers, headers_text, body)

    @property
    def is_poison(self) -> bool:
        return isinstance(self.headers, MessageError)

    @property
    def forward_destination(self) -> str | None:
        """The next destination of a delayed message; None: without one."""
        return self._header(FORWARD_DESTINATION)

    @property
    def time_to_be_received(self) -> timedelta | None:
        """The time to be received in the sender's header; None without one."""
        return read_time_span(self._header(TIME_TO_BE_RECEIVED))

    def _header(self, name: str) -> str | None:
        return None if isinstance(self.headers, MessageError) else self.headers.get(name)


class Parts(NamedTuple):
    """A duration in whole numbers, each less than one of the next larger unit."""

    days: int
    hours: int
    minutes: int
    seconds: int
    milliseconds: int


def split_duration(duration: timedelta) -> Parts:
    """`duration` in days, hours, minutes, seconds and milliseconds; the rest is cut off."""
    milliseconds = duration // _MILLISECOND
    seconds, milliseconds = divmod(milliseconds, 1_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return Parts(days, hours, minutes, seconds, milliseconds)


def write_time_span(duration: timedelta) -> str:
    """`duration` as .NET writes it into a header, `[d.]hh:mm:ss[.fffffff]`; not negative."""
    minutes, seconds = divmod(duration.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days = f"{duration.days}." if duration.days else ""
    ticks = f".{duration.microseconds:06}0" if duration.microseconds else ""
    return f"{days}{hours:02}:{minutes:02}:{seconds:02}{ticks}"
