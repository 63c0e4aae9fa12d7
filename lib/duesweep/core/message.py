"""A delayed message as a claim returns it, its outcome in a batch, on which stores act, its error
message.

Names, order and formats of the headers that a message gets on its way to the error queue are as
in `ExceptionHeaderHelper` and `FaultsHeaderKeys` in the core of NServiceBus, as seen in the
transport's error queue. ServicePulse reads them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from duesweep.core.errors import (
    MessageError,
    format_stack,
    make_storable,
    shorten,
    type_name,
)
from duesweep.core.headers import FORWARD_DESTINATION, Headers, write_json

# Of a destination, as it was written; None: the endpoint's own queue.
Address = str | None

MESSAGE_ID = "NServiceBus.MessageId"
ENCLOSED_MESSAGE_TYPES = "NServiceBus.EnclosedMessageTypes"
# A text that is longer is not kept: a thousand of them could fill the memory.
_LONGEST_USUAL_TYPES = 4_000


class Message(NamedTuple):
    """One claimed row. A tuple: a sweep makes millions, three times as fast as of a dataclass.

    - `key`: the store's key as text.
    - `due_us`: the stored Due in microseconds since 1970-01-01 UTC; None: an infinite time.
    - `headers`: the parsed headers; if they cannot be read, the reason.
    - `headers_text`: the headers as they are delivered; if unreadable, as they were stored.
    - `destination`: the address as it was written; None: the endpoint's own queue.
    - `attempts`: the failures so far.
    - `instant_us`: the instant at which the message is due, in microseconds since 1970-01-01 UTC.
      It differs from `due_us` where Due was written in another time zone. Every claim sets it. None
      only where `due_us` is None.
    """

    key: str
    due_us: int | None
    headers: Headers | MessageError
    headers_text: str
    body: bytes | None
    destination: str | None
    attempts: int = 0
    instant_us: int | None = None

    @property
    def message_id(self) -> str | None:
        """The NServiceBus message id; None if the headers cannot be read or have none."""
        return self._header(MESSAGE_ID)

    @property
    def message_type(self) -> str | None:
        """The first enclosed message type up to its first comma or semicolon."""
        return first_type(self._header(ENCLOSED_MESSAGE_TYPES))

    @property
    def body_bytes(self) -> int:
        """Length of the body in bytes; 0 without one."""
        return len(self.body) if self.body is not None else 0

    def _header(self, name: str) -> str | None:
        return None if isinstance(self.headers, MessageError) else self.headers.get(name)


def first_type(enclosed_types: str | None) -> str | None:
    """The first of the enclosed message types, up to its first comma or semicolon."""
    if not enclosed_types:
        return None
    is_usual = len(enclosed_types) <= _LONGEST_USUAL_TYPES
    return _cached_first_type(enclosed_types) if is_usual else _first_type(enclosed_types)


def _first_type(enclosed_types: str) -> str:
    return enclosed_types.split(";", 1)[0].split(",", 1)[0].strip()


_cached_first_type = lru_cache(maxsize=1024)(_first_type)


class Delivered(NamedTuple):
    """The message is in `queue`, and its row leaves the store. `is_deferred`: it was not due yet,
    and the queue's own delayed delivery delivers it when it is due.
    """

    message: Message
    queue: str
    is_deferred: bool = False

    @property
    def name(self) -> str:
        """The outcome's name in the ledger."""
        return "deferred" if self.is_deferred else "dispatched"


class Faulty(NamedTuple):
    """The message could not be delivered, by its own fault. It becomes `Failed` or `Exhausted`."""

    message: Message
    error: MessageError


class Failed(NamedTuple):
    """The message stays; it is eligible again after `retry_seconds`. `is_over_limit`: it is out of
    attempts, but the sweep has exhausted as many as it may.
    """

    message: Message
    error: MessageError
    retry_seconds: float
    is_over_limit: bool = False


class Exhausted(NamedTuple):
    """The message is out of attempts. Its row leaves the store, and the journal gets all of it.

    `queue` is the error queue that also has the message; None: no error queue is set, or it refused
    the message, for the reason `refusal`.
    """

    message: Message
    error: MessageError
    queue: str | None
    refusal: MessageError | None = None

    @property
    def text(self) -> str:
        """The reason of the failure, and the error queue's reason if it refused the message."""
        if self.refusal is None:
            return str(self.error)
        return f"{self.error}; the error queue refused the message: {self.refusal.text}"


class Why(Enum):
    """Why a message stays in the store, although no attempt is counted."""

    # Its destination is unavailable, or has a limit.
    BLOCKED = "blocked"
    # Its destination is paused.
    HELD = "held"
    # It is not due yet.
    EARLY = "early"
    # Its destination cannot defer messages now; or it is out of attempts, and the error queue is
    # unavailable.
    LEFT = "left"
    # It may have arrived or not: it gets another batch of this slice.
    RELEASED = "released"
    # It was not sent, since others took too long: it gets another batch of this slice.
    UNREACHED = "unreached"


class Stays(NamedTuple):
    """The message stays in the store as it was."""

    message: Message
    why: Why


# The outcome of one message of a batch: delivery finds it out, and stores and the slice act on it.
Outcome = Delivered | Faulty | Failed | Exhausted | Stays


def staying(messages: Iterable[Message], why: Why) -> list[Outcome]:
    """The outcomes of messages that all stay for one reason."""
    return [Stays(message, why) for message in messages]


def outcomes_of(sent: Sequence[Delivered], refused: Mapping[str, MessageError]) -> list[Outcome]:
    """The outcomes of sent messages, some of which were refused. A refused message that is not due
    yet is not charged: the fault may be gone when it is due.
    """
    return [_outcome_of(one, refused.get(one.message.key)) for one in sent] if refused else [*sent]


def _outcome_of(one: Delivered, error: MessageError | None) -> Outcome:
    if error is None:
        return one
    return Stays(one.message, Why.EARLY) if one.is_deferred else Faulty(one.message, error)


EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.ExceptionType"
INNER_EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.InnerExceptionType"
HELP_LINK = "NServiceBus.ExceptionInfo.HelpLink"
EXCEPTION_MESSAGE = "NServiceBus.ExceptionInfo.Message"
SOURCE = "NServiceBus.ExceptionInfo.Source"
STACK_TRACE = "NServiceBus.ExceptionInfo.StackTrace"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
FAILED_QUEUE = "NServiceBus.FailedQ"
_EXCEPTION_PREFIX = "NServiceBus.ExceptionInfo."
# NServiceBus also cuts stack traces that a transport would refuse.
_SHORT_FAULT = 200
# duesweep's own: the stored text of headers that cannot be read.
UNREADABLE_HEADERS = "duesweep.UnreadableHeaders"


def make_error_message(
    message: Message,
    error: MessageError,
    *,
    own_queue: str,
    now: datetime | None = None,
    is_short: bool = False,
) -> Message:
    """The message as it goes to the error queue: without its forward destination, with the fault.

    If its headers cannot be read, it has the fault headers, and the raw headers in one header.
    `is_short`: the fault's text and stack trace are cut off, for a queue that refuses long headers.
    """
    if isinstance(message.headers, MessageError):
        headers: dict[str, str | None] = {UNREADABLE_HEADERS: message.headers_text}
    else:
        headers = dict(message.headers)
        headers.pop(FORWARD_DESTINATION, None)
    failed_queue = message.destination or own_queue
    headers |= fault_headers(error, failed_queue, now or datetime.now(UTC))
    if is_short:
        for name in (EXCEPTION_MESSAGE, STACK_TRACE):
            headers[name] = shorten(str(headers[name]), _SHORT_FAULT)
    return message._replace(headers=headers, headers_text=write_json(headers))


def fault_headers(error: MessageError, failed_queue: str, now: datetime) -> Headers:
    """The fault headers, in NServiceBus's order; the inner exception's only if there is one."""
    inner = error.__cause__
    headers: dict[str, str | None] = {EXCEPTION_TYPE: type_name(error)}
    if inner is not None:
        headers[INNER_EXCEPTION_TYPE] = type_name(inner)
    return headers | {
        HELP_LINK: None,
        EXCEPTION_MESSAGE: make_storable(str(error)),
        SOURCE: "duesweep",
        STACK_TRACE: format_stack(error),
        TIME_OF_FAILURE: wire_time(now),
        FAILED_QUEUE: failed_queue,
    }


def is_fault_header(name: str) -> bool:
    """Whether the header describes a failure, also one that another endpoint has noted."""
    return name in {TIME_OF_FAILURE, FAILED_QUEUE} or name.startswith(_EXCEPTION_PREFIX)


def wire_time(moment: datetime) -> str:
    """A UTC time in NServiceBus's wire format, `yyyy-MM-dd HH:mm:ss:ffffff Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S:%f Z")


TIME_TO_BE_RECEIVED = "NServiceBus.TimeToBeReceived"
