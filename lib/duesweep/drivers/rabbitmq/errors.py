"""Whose fault an error of the broker's is."""

import re
import ssl
from collections.abc import Sequence

import pika.exceptions

from duesweep.errors import ConfigError, DuesweepError, QueueError

NOT_FOUND, ACCESS_REFUSED, PRECONDITION_FAILED = 404, 403, 406

# What does not fit 255 bytes is cut off, and ends in dots.
_NAME = re.compile(r"(?:exchange|queue) '(?P<name>.*?)(?P<end>' in vhost|\.\.\.$)")
# The default exchange has no name, but one in the broker's texts.
_DEFAULT_EXCHANGE = "amq.default"
_ALERT = re.compile(r"\[SSL: \w*ALERT")
_CLOSED = re.compile(r"ConnectionClosedByBroker: \((?P<code>\d+)\)")
_GUESSES = (
    pika.exceptions.ProbableAuthenticationError,
    pika.exceptions.ProbableAccessDeniedError,
)
# The last is what a missing vhost, and one without rights, are answered with.
_NOES = {ACCESS_REFUSED, NOT_FOUND, 530}


class ChannelClosedError(QueueError):
    """The broker closed a channel over what was asked on it; the connection is still good.

    `code` is AMQP's.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text, transient=True)
        self.code = code
        found = _NAME.search(text)
        # A match itself cannot be pickled.
        self._found = None if found is None else found.groupdict()

    def is_about(self, exchange: str) -> bool:
        """Whether the broker's text names this exchange."""
        if self._found is None:
            return False
        name, seen = exchange or _DEFAULT_EXCHANGE, self._found["name"]
        return name.startswith(seen) if self._found["end"] == "..." else name == seen


class UnansweredError(QueueError):
    """The broker has not answered, or confirmed what it was sent, in time."""


def connect_error(broker: str, error: BaseException) -> DuesweepError:
    """Why a broker could not be connected to: its setting's fault, or its own."""
    causes = _causes(error)
    reasons = "; ".join(dict.fromkeys(_reason(cause) for cause in causes if not _inner(cause)))
    text = f"RabbitMQ at {broker} cannot be connected to: {reasons}"
    if any(_is_about_tls(cause) for cause in causes):
        return ConfigError(text, advice="check the certificates, and whether that port speaks TLS")
    if any(_is_refusal(cause) for cause in causes):
        return ConfigError(text, advice="check user, password, vhost and the user's rights in it")
    if "SSLEOFError" in text:
        # The last word of TLS 1.3 to a wrong client may be lost, as it is to a broker's end.
        text += "; it may want another client certificate, or none may be there to serve"
    return QueueError(
        text,
        transient=True,
        advice="see that it runs, and that this machine and every executor can connect to it",
    )


def _is_about_tls(error: BaseException) -> bool:
    """Whether one side did not accept the other, and said so. What just ended, as when a broker
    restarts, did not.
    """
    if isinstance(error, ssl.SSLError):
        ends = ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError
        return not isinstance(error, ends)
    # In TLS 1.3 a client's certificate is looked at when pika takes the connection for made.
    is_guess = isinstance(error, pika.exceptions.IncompatibleProtocolError)
    return is_guess and _ALERT.search(str(error)) is not None


def _is_refusal(error: BaseException) -> bool:
    """Whether the broker said no to this user. Pika guesses so whenever a connection ends before
    it is open, and leaves what it saw as text.
    """
    if isinstance(error, pika.exceptions.ConnectionClosedByBroker):
        return error.reply_code in _NOES
    if isinstance(error, _GUESSES):
        seen = _CLOSED.search(str(error))
        return bool(seen and int(seen["code"]) in _NOES)
    return isinstance(error, pika.exceptions.AuthenticationError)


def lost_error(broker: str, error: BaseException) -> QueueError:
    """The connection ended while it was in use."""
    return QueueError(
        f"The connection to RabbitMQ at {broker} was lost: {_reason(error)}", transient=True
    )


def channel_error(error: BaseException) -> ChannelClosedError | None:
    """Why the broker closed a channel. None where it ended with its connection: pika tells
    channels first, and whoever then looked would take the connection for open.
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
    """What an error wraps; the last two are pika's ways."""
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
