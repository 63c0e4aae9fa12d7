"""The commands of `duesweep queue` and `duesweep subscriptions`."""

import base64
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.config.adapters.transport import TransportSession, transport_of
from duesweep.core.errors import ConfigError, ExitCode, MessageError, make_printable
from duesweep.core.message import OutgoingMessage, ReceivedMessage
from duesweep.core.times import parse_duration

_STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Target:
    """What a command works on: a configuration and one of its connections."""

    file: Path | None
    overrides: Sequence[str] | None
    connection: str | None = None

    def config(self) -> Config:
        """The configuration."""
        return configuration.load(self.file, self.overrides or [])


@contextmanager
def open_session(target: Target) -> Iterator[TransportSession]:
    """A session. A `MessageError`, as of an address without a queue, becomes a `ConfigError`."""
    try:
        with transport_of(target.config(), target.connection).connect() as session:
            yield session
    except MessageError as error:
        raise ConfigError(error.text, advice=error.advice) from error


def print_script(target: Target, names: Sequence[str], role: str, address: str) -> ExitCode:
    """Print the statements of these names for the table at `address`. Connects to nothing."""
    found = transport_of(target.config(), target.connection)
    try:
        table = found.addresses.parse(address)
    except MessageError as error:
        raise ConfigError(error.text, advice=error.advice) from error
    print(found.script(names, role, table))
    return ExitCode.DONE


def build_message(
    headers: Sequence[str], body: bytes | None, time_to_be_received: str | None, delay: str | None
) -> OutgoingMessage:
    """The message that the options describe."""
    named: dict[str, str | None] = {}
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator or not name:
            raise ConfigError(
                f"--header {header!r} is not of the form NAME=VALUE",
                advice="write it as in --header Colour=blue",
            )
        named[name] = value
    return OutgoingMessage(
        named,
        body,
        time_to_be_received=None
        if time_to_be_received is None
        else parse_duration(time_to_be_received),
        delay=None if delay is None else parse_duration(delay),
    )


def read_body(text: str | None, file: Path | None) -> bytes | None:
    """The body from a text or a file, `-` for standard input; None if neither is given."""
    if text is not None and file is not None:
        raise ConfigError("--body and --body-file are both given", advice="give one of them")
    if file is None:
        return None if text is None else text.encode()
    try:
        return sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--body-file cannot be read: {error}", advice="check its path and its permissions"
        ) from error


def receive(target: Target, address: str, count: int, *, as_json: bool) -> ExitCode:
    """Receive and print up to `count` messages. Poison goes to the error queue; without an error
    queue it stays, and the messages behind it are not received.
    """
    error_queue = target.config().retry.error_queue
    outcome = ExitCode.DONE
    with open_session(target) as session:
        for _ in range(count):
            with session.queue(address).receive() as message:
                if message is None:
                    return outcome
                if message.is_poison:
                    _move(message, error_queue, session)
                    outcome = ExitCode.MESSAGES_FAILED
                else:
                    # Printed before it is removed: a broken pipe puts it back.
                    print(_format_json(message) if as_json else _format_text(message), flush=True)
    return outcome


def print_done(sentence: str, *, as_json: bool, **facts: object) -> None:
    """Print what was done: a sentence, or the facts as one JSON document."""
    known = {name: one if isinstance(one, bool) else str(one) for name, one in facts.items()}
    print(json.dumps(known) if as_json else make_printable(sentence))


def print_count(name: str, count: int, *, destination: object, as_json: bool) -> None:
    """Print one number about a queue."""
    if as_json:
        print(json.dumps({"queue": str(destination), name: count}))
    else:
        print(f"{destination}: {count:,} {'message' if (name, count) == ('messages', 1) else name}")


def print_lines(name: str, values: Sequence[str], *, as_json: bool) -> None:
    """Print a line for each value."""
    for value in values:
        print(json.dumps({name: value}) if as_json else make_printable(value))


def require_delayed_table(target: Target) -> None:
    """Raise `ConfigError` unless the store is a delayed table of the transport that sends."""
    kind = target.config().store.kind
    if kind not in {"postgresql", "sqlserver"}:
        raise ConfigError(
            "--delay stores a message in the delayed table of the PostgreSQL or SQL Server "
            f"transport, and the store is of kind {kind}",
            advice="send it without a delay, or let the endpoint itself delay it",
        )


def require_yes(address: str, *, given: bool) -> None:
    """Raise `ConfigError` unless --yes is given."""
    if not given:
        raise ConfigError(
            f"All messages in {address} would be lost", advice="give --yes to confirm"
        )


def _move(message: ReceivedMessage, error_queue: str | None, session: TransportSession) -> None:
    if error_queue is None:
        raise ConfigError(
            f"The headers of the message with id {message.id} cannot be read, so it stays in its "
            f"queue ({message.headers})",
            advice="set retry.error_queue, and it is moved to that queue",
        )
    session.queue(error_queue).append(message.id, message.headers_text, message.body)
    told = f"duesweep: moved the message with id {message.id} to {error_queue}, since its headers "
    print(make_printable(f"{told}cannot be read: {message.headers}"), file=sys.stderr)


def _format_json(message: ReceivedMessage) -> str:
    shown: dict[str, Any] = {"id": str(message.id), "headers": message.headers}
    body = message.body
    shown["body"] = None if body is None else base64.b64encode(body).decode()
    return json.dumps(shown)


def _format_text(message: ReceivedMessage) -> str:
    assert not isinstance(message.headers, MessageError)
    headers = [
        f"{name}: {'' if value is None else value}" for name, value in message.headers.items()
    ]
    body = "" if message.body is None else message.body.decode(errors="backslashreplace")
    lines = [f"id: {message.id}", *headers, "", *body.split("\n")]
    return "\n".join(map(make_printable, lines)) + "\n"
