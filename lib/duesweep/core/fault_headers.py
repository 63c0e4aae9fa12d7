"""The headers that NServiceBus adds to a message when it sends it to the error queue.

Names, order and formats are those of `ExceptionHeaderHelper` and `FaultsHeaderKeys` in the core of
NServiceBus, as seen in the transport's error queue. ServicePulse reads them.
"""

from datetime import UTC, datetime

from duesweep.core.errors import MessageError, format_stack, make_storable, type_name
from duesweep.core.headers import json as headers_json
from duesweep.core.message import Headers, Message

EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.ExceptionType"
INNER_EXCEPTION_TYPE = "NServiceBus.ExceptionInfo.InnerExceptionType"
HELP_LINK = "NServiceBus.ExceptionInfo.HelpLink"
EXCEPTION_MESSAGE = "NServiceBus.ExceptionInfo.Message"
SOURCE = "NServiceBus.ExceptionInfo.Source"
STACK_TRACE = "NServiceBus.ExceptionInfo.StackTrace"
TIME_OF_FAILURE = "NServiceBus.TimeOfFailure"
FAILED_QUEUE = "NServiceBus.FailedQ"
_EXCEPTION_PREFIX = "NServiceBus.ExceptionInfo."
# duesweep's own: the stored text of headers that cannot be read.
UNREADABLE_HEADERS = "duesweep.UnreadableHeaders"


def make_error_message(
    message: Message, error: MessageError, *, own_queue: str, now: datetime | None = None
) -> Message:
    """The message as it goes to the error queue: without its forward destination, with the fault.

    If its headers cannot be read, it has the fault headers, and the raw headers in one header.
    """
    if isinstance(message.headers, MessageError):
        headers: dict[str, str | None] = {UNREADABLE_HEADERS: message.headers_text}
    else:
        headers = dict(message.headers)
        headers.pop(headers_json.FORWARD_DESTINATION, None)
    failed_queue = message.destination or own_queue
    headers |= fault_headers(error, failed_queue, now or datetime.now(UTC))
    return message._replace(headers=headers, headers_text=headers_json.write(headers))


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
    """Whether the header tells of a failure, also of one that another endpoint has noted."""
    return name in {TIME_OF_FAILURE, FAILED_QUEUE} or name.startswith(_EXCEPTION_PREFIX)


def wire_time(moment: datetime) -> str:
    """A UTC time in NServiceBus's wire format, `yyyy-MM-dd HH:mm:ss:ffffff Z`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S:%f Z")
