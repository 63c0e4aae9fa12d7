"""Errors of pika and of the broker as duesweep's: is a setting wrong, or may it pass?"""

import re
import ssl
from collections.abc import Sequence

import pika.exceptions

from duesweep.core.errors import (
    NO_DESCRIPTORS,
    ConfigError,
    DuesweepError,
    QueueError,
    lacks_descriptors,
)

NOT_FOUND, ACCESS_REFUSED, PRECONDITION_FAILED = 404, 403, 406

# A text over 255 bytes is cut off, and ends in dots.
_NAME = re.compile(r"(?:exchange|queue) '(?P<name>.*?)(?P<end>' in vhost|\.\.\.$)")
# The default exchange has no name, but the broker's texts call it this.
_DEFAULT_EXCHANGE = "amq.default"
_NODE_IS_DOWN = "NOT_FOUND - home node "
_ALERT = re.compile(r"\[SSL: \w*ALERT")
_CLOSED = re.compile(r"ConnectionClosedByBroker: \((?P<code>\d+)\)")
_GUESSES = (
    pika.exceptions.ProbableAuthenticationError,
    pika.exceptions.ProbableAccessDeniedError,
)
# The broker answers 530 for a vhost that is missing or that the user may not use; but also for one
# that has not started, and for too many connections.
_REFUSAL_CODES = {ACCESS_REFUSED, NOT_FOUND, 530}
_PASSING_REFUSAL = re.compile(r"limit \(\d+\) is reached|vhost '[^']*' is down")


class ChannelClosedError(QueueError):
    """The broker refused something and closed the channel. The connection is still open.

    `code` is AMQP's reply code. `is_missing`: the queue or exchange does not exist.
    """

    stored_name = "duesweep.drivers.rabbitmq.errors.ChannelClosedError"

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text, transient=True)
        self.code = code
        found = _NAME.search(text)
        # A match cannot be pickled.
        self._found = None if found is None else found.groupdict()
        # A queue without copies on a node of a cluster that is down is not found either.
        self.is_missing = code == NOT_FOUND and not text.startswith(_NODE_IS_DOWN)

    def is_about(self, exchange: str) -> bool:
        """Whether the broker's text names this exchange."""
        if self._found is None:
            return False
        name, seen = exchange or _DEFAULT_EXCHANGE, self._found["name"]
        return name.startswith(seen) if self._found["end"] == "..." else name == seen


class UnansweredError(QueueError):
    """The broker has not answered, or not confirmed messages, in time."""

    stored_name = "duesweep.drivers.rabbitmq.errors.UnansweredError"


def connect_error(broker: str, error: BaseException) -> DuesweepError:
    """Why a broker could not be connected to. A `ConfigError` for a wrong setting, else a
    `QueueError`.
    """
    if lacks_descriptors(error):
        return QueueError(
            f"Cannot connect to RabbitMQ at {broker}: {NO_DESCRIPTORS.text}",
            transient=True,
            advice=NO_DESCRIPTORS.advice,
        )
    causes = _causes(error)
    reasons = "; ".join(dict.fromkeys(_reason(cause) for cause in causes if not _inner(cause)))
    text = f"Cannot connect to RabbitMQ at {broker}: {reasons}"
    if any(_is_about_tls(cause) for cause in causes):
        return ConfigError(text, advice="check the certificates, and whether that port uses TLS")
    if any(_is_refusal(cause) for cause in causes) and not _PASSING_REFUSAL.search(text):
        return ConfigError(text, advice="check user, password, vhost and the user's rights in it")
    if "SSLEOFError" in text:
        # With TLS 1.3, a broker's refusal of a certificate may be lost: it looks like its end.
        text += "; it may require another client certificate, or no broker may run behind that port"
    return QueueError(
        text,
        transient=True,
        advice="check that it runs, and that this machine and every executor can connect to it",
    )


def _is_about_tls(error: BaseException) -> bool:
    """Whether one side refused the other's certificate or protocol, and said so. A connection that
    only ended, as when a broker restarts, was not refused.
    """
    if isinstance(error, ssl.SSLError):
        ends = ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
        return not isinstance(error, ends)
    # With TLS 1.3 the broker checks the client's certificate after pika's handshake has ended.
    is_guess = isinstance(error, pika.exceptions.IncompatibleProtocolError)
    return is_guess and _ALERT.search(str(error)) is not None


def _is_refusal(error: BaseException) -> bool:
    """Whether the broker refused this user. pika assumes so whenever a connection ends before it
    is open. The real cause is only in its text.
    """
    if isinstance(error, pika.exceptions.ConnectionClosedByBroker):
        return error.reply_code in _REFUSAL_CODES
    if isinstance(error, _GUESSES):
        seen = _CLOSED.search(str(error))
        return bool(seen and int(seen["code"]) in _REFUSAL_CODES)
    return isinstance(error, pika.exceptions.AuthenticationError)


def lost_error(broker: str, error: BaseException) -> QueueError:
    """The error of a connection that ended while it was in use, or while it was made."""
    reason, advice = _reason(error), None
    if lacks_descriptors(error):
        reason, advice = NO_DESCRIPTORS.text, NO_DESCRIPTORS.advice
    return QueueError(
        f"The connection to RabbitMQ at {broker} was lost: {reason}", transient=True, advice=advice
    )


def channel_error(error: BaseException) -> ChannelClosedError | None:
    """Why the broker closed a channel. None if the channel ended with its connection: pika tells
    channels first, when the connection still looks open.
    """
    if isinstance(error, pika.exceptions.ChannelClosed):
        return ChannelClosedError(error.reply_code, error.reply_text)
    return None


def _causes(error: BaseException) -> Sequence[BaseException]:
    found: list[BaseException] = []
    waiting: list[BaseException] = [error]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found.append(one)
        waiting += _inner(one)
    return found


def _inner(error: BaseException) -> Sequence[BaseException]:
    """The errors that an error wraps; the last two are attributes of pika's errors."""
    inner = (
        *error.args,
        error.__cause__,
        getattr(error, "exception", None),
        *getattr(error, "exceptions", ()),
    )
    return [cause for cause in inner if isinstance(cause, BaseException)]


def _reason(error: BaseException) -> str:
    if isinstance(error, pika.exceptions.ConnectionClosed | pika.exceptions.ChannelClosed):
        return f"{error.reply_text} ({error.reply_code})"
    return str(error) or type(error).__name__
