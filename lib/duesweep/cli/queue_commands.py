"""What the commands of `duesweep queue` and `duesweep subscriptions` do."""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep import duration
from duesweep.config import Config
from duesweep.errors import ConfigError, ExitCode, MessageError
from duesweep.transport_message import OutgoingMessage, ReceivedMessage
from duesweep.wiring import operations
from duesweep.wiring.operations import TransportSession


@dataclass(frozen=True, slots=True)
class At:
    """Which configuration, and which of its connections."""

    file: Path | None
    overrides: Sequence[str] | None
    connection: str | None = None

    def config(self) -> Config:
        """The configuration."""
        return configuration.load(self.file, self.overrides or [])


@contextmanager
def opened(at: At) -> Iterator[TransportSession]:
    """A session; an address that names no queue is a wrong argument here."""
    try:
        with operations.session(at.config(), at.connection) as session:
            yield session
    except MessageError as error:
        raise ConfigError(str(error)) from error


def outgoing(
    headers: Sequence[str], body: bytes | None, time_to_be_received: str | None, delay: str | None
) -> OutgoingMessage:
    """The message that options describe."""
    named: dict[str, str | None] = {}
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator or not name:
            raise ConfigError(f"--header {header!r} is not of the form NAME=VALUE")
        named[name] = value
    return OutgoingMessage(
        named,
        body,
        time_to_be_received=None
        if time_to_be_received is None
        else duration.parse(time_to_be_received),
        delay=None if delay is None else duration.parse(delay),
    )


def body_of(text: str | None, file: Path | None) -> bytes | None:
    """The body that is given as text or as a file; None without either."""
    if text is not None and file is not None:
        raise ConfigError("--body and --body-file are two bodies", advice="give one")
    if file is None:
        return None if text is None else text.encode()
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--body-file cannot be read: {error}") from error


def receive(at: At, address: str, count: int, *, as_json: bool) -> ExitCode:
    """Receive and print up to `count` messages. Poison goes to the error queue; where there is none
    it stays, and nothing behind it is received.
    """
    error_queue = at.config().retry.error_queue
    outcome = ExitCode.DONE
    with opened(at) as session:
        for _ in range(count):
            with session.queue(address).receive() as message:
                if message is None:
                    return outcome
                if message.is_poison:
                    _move(message, error_queue, session)
                    outcome = ExitCode.MESSAGES_FAILED
                else:
                    # Seen before it is gone: a reader that has left puts it back.
                    print(_line(message) if as_json else _page(message), flush=True)
    return outcome


def print_count(name: str, count: int, *, destination: object, as_json: bool) -> None:
    """One number about a queue."""
    if as_json:
        print(json.dumps({"queue": str(destination), name: count}))
    else:
        print(f"{destination}: {count} {'message' if (name, count) == ('messages', 1) else name}")


def print_lines(name: str, values: Sequence[str], *, as_json: bool) -> None:
    """A line for each value."""
    for value in values:
        print(json.dumps({name: value}, ensure_ascii=False) if as_json else value)


def require_delayed_table(at: At) -> None:
    """`ConfigError` unless the store is a delayed table of the transport that sends."""
    kind = at.config().store.kind
    if kind not in {"postgresql", "sqlserver"}:
        raise ConfigError(
            "--delay stores a message in the delayed table of the PostgreSQL or SQL Server "
            f"transport, and the store is of kind {kind}",
            advice="send it without a delay, or let the endpoint itself delay it",
        )


def require_yes(address: str, *, given: bool) -> None:
    """`ConfigError` unless it is meant."""
    if not given:
        raise ConfigError(
            f"All messages in {address} would be lost for good", advice="if so, give --yes"
        )


def _move(message: ReceivedMessage, error_queue: str | None, session: TransportSession) -> None:
    if error_queue is None:
        raise ConfigError(
            f"The message with id {message.id} stays where it is, since its headers cannot be read "
            f"({message.headers})",
            advice="set retry.error_queue, which it would then go to",
        )
    session.queue(error_queue).append(message.id, message.headers_text, message.body)
    print(
        f"duesweep: the message with id {message.id} went to {error_queue}, since its headers "
        f"cannot be read: {message.headers}",
        file=sys.stderr,
    )


def _line(message: ReceivedMessage) -> str:
    shown: dict[str, Any] = {"id": str(message.id), "headers": message.headers}
    body = message.body
    shown["body"] = None if body is None else base64.b64encode(body).decode()
    return json.dumps(shown, ensure_ascii=False)


def _page(message: ReceivedMessage) -> str:
    assert not isinstance(message.headers, MessageError)
    headers = "".join(f"{n}: {'' if v is None else v}\n" for n, v in message.headers.items())
    body = "" if message.body is None else message.body.decode(errors="backslashreplace")
    return f"id: {message.id}\n{headers}\n{body}\n"
