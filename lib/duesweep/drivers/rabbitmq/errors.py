"""Whose fault an error of the broker's is."""

import re
import ssl
from collections.abc import Sequence

import pika.exceptions

from duesweep.errors import ConfigError, DuesweepError, QueueError

NOT_FOUND, ACCESS_REFUSED, PRECONDITION_FAILED = 404, 403, 406

_NAME = re.compile(r"(?:exchange|queue) '(?P<name>.*?)' in vhost")
_SETTINGS_FAULTS = (
    pika.exceptions.ProbableAuthenticationError,
    pika.exceptions.ProbableAccessDeniedError,
    pika.exceptions.AuthenticationError,
    ssl.SSLError,
)


class ChannelClosedError(QueueError):
    """The broker closed a channel over what was asked on it; the connection is still good.

    `code` is AMQP's, `about` the exchange or queue that the broker's text names, None where none.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text, transient=True)
        self.code = code
        found = _NAME.search(text)
        self.about = found["name"] if found else None


class UnansweredError(QueueError):
    """The broker has not confirmed in time what it was sent."""


def connect_error(broker: str, error: BaseException) -> DuesweepError:
    """Why a broker could not be connected to: its setting's fault, or its own."""
    text = f"RabbitMQ at {broker} cannot be connected to: {_reason(error)}"
    causes = list(_causes(error))
    if any(isinstance(cause, _SETTINGS_FAULTS) for cause in causes):
        return ConfigError(f"{text}; check user, password, vhost and certificates")
    if any(
        isinstance(cause, pika.exceptions.ConnectionClosedByBroker)
        and cause.reply_code in {ACCESS_REFUSED, NOT_FOUND, 530}
        for cause in causes
    ):
        return ConfigError(f"{text}; check the vhost and the user's rights in it")
    return QueueError(text, transient=True)


def lost_error(broker: str, error: BaseException) -> QueueError:
    """The connection ended while it was in use."""
    return QueueError(
        f"The connection to RabbitMQ at {broker} was lost: {_reason(error)}", transient=True
    )


def channel_error(error: BaseException) -> QueueError:
    """What ended a channel."""
    if isinstance(error, pika.exceptions.ChannelClosed):
        return ChannelClosedError(error.reply_code, error.reply_text)
    return QueueError(f"A channel to RabbitMQ ended: {_reason(error)}", transient=True)


def _causes(error: BaseException) -> Sequence[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.append(one)
        waiting += [
            inner for inner in (*one.args, one.__cause__) if isinstance(inner, BaseException)
        ]
        waiting += [e for e in getattr(one, "exceptions", ()) if isinstance(e, BaseException)]
    return found


def _reason(error: BaseException) -> str:
    if isinstance(error, pika.exceptions.ConnectionClosed | pika.exceptions.ChannelClosed):
        return f"{error.reply_text} ({error.reply_code})"
    return str(error) or type(error).__name__
