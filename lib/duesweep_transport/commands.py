"""`duesweep queue …` and `duesweep subscriptions …`: the transports' operations on queue tables."""

import json
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duesweep.cli.commands import (
    AGAIN,
    NOTHING,
    AsJson,
    Configured,
    Connection,
    Printed,
    PrintSql,
    command,
    group,
)
from duesweep.cli.output import is_closed
from duesweep.core.errors import (
    ConfigError,
    ExitCode,
    MessageError,
)
from duesweep.core.times import parse_duration
from duesweep.drivers.servers import SERVERS
from duesweep.report.document import plain
from duesweep.report.tables import print_blocks
from duesweep.report.text import Line, Note
from duesweep_transport import views
from duesweep_transport.values import OutgoingMessage, ReceivedMessage

if TYPE_CHECKING:
    from duesweep_transport.tables import Transport, TransportSession

queue = group("Create, fill, read and purge queues as the endpoint's transport does.")
subscriptions = group("Read and change the transport's table of subscriptions.")

SENT = "the message may have been sent or not; look before you send it again"
_PURGED = "it may have removed some messages; the others are still there"
_STDIN = Path("-")
# Equal to `SUBSCRIPTION_TABLE`, whose module is imported only when a command runs.
_DEFAULT_TABLE = "SubscriptionRouting"

Address = Annotated[str, typer.Argument(help="The address of a queue.")]
Table = Annotated[str, typer.Option("--table", help="The address of the table.")]
Topic = Annotated[str, typer.Argument(help="A topic: the full name of a message type.")]
Subscriber = Annotated[
    str, typer.Option("--subscriber", metavar="NAME", help="The name of the subscribing endpoint.")
]


@dataclass(frozen=True, slots=True)
class On(Configured):
    """A connection of a configuration."""

    connection: Connection = None
    as_json: AsJson = False

    @contextmanager
    def transport(self) -> "Iterator[Transport]":
        """Its queues. A `MessageError`, as of an address of no queue, becomes a `ConfigError`."""
        from duesweep_transport.configured import transport_of

        try:
            yield transport_of(self.loaded(), self.connection)
        except MessageError as error:
            raise ConfigError.of(error.problem) from error

    @contextmanager
    def session(self) -> "Iterator[TransportSession]":
        """A session on them."""
        with self.transport() as found, found.connect() as session:
            yield session

    def script(self, names: Sequence[str], role: str, address: str) -> Printed:
        """The statements of these names for the table at `address`. Connects to nothing."""
        with self.transport() as found:
            text = found.script(names, role, found.addresses.parse(address))
        return Printed({"sql": text}, map(Line, text.split("\n")))


@dataclass(frozen=True, slots=True)
class Content:
    """The options of a new message, except headers that have options of their own."""

    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None
    body: Annotated[str | None, typer.Option(help="The body, as text in UTF-8.")] = None
    body_file: Annotated[
        Path | None, typer.Option(help="A file with the body; - for standard input.")
    ] = None
    time_to_be_received: Annotated[
        str | None, typer.Option(help="The time until it expires, such as 30s; not with --delay.")
    ] = None

    def message(self, delay: str | None) -> OutgoingMessage:
        headers: dict[str, str | None] = {}
        for header in self.header or ():
            name, separator, value = header.partition("=")
            if not separator or not name:
                raise ConfigError(
                    f"--header {header!r} is not of the form NAME=VALUE",
                    advice="write it as in --header Colour=blue",
                )
            if name in headers:
                raise ConfigError(
                    f"The header {name} is given twice", advice="leave one of the two out"
                )
            headers[name] = value
        lifetime = self.time_to_be_received
        return OutgoingMessage(
            headers,
            self._read_body(),
            time_to_be_received=None if lifetime is None else parse_duration(lifetime),
            delay=None if delay is None else parse_duration(delay),
        )

    def _read_body(self) -> bytes | None:
        file = self.body_file
        if self.body is not None and file is not None:
            raise ConfigError("--body and --body-file are both given", advice="give one of them")
        if file is None:
            return None if self.body is None else self.body.encode()
        try:
            return sys.stdin.buffer.read() if file == _STDIN else file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"--body-file cannot be read: {error}", advice="check its path and its permissions"
            ) from error


# Queue tables.


@command(queue, "create", ending=AGAIN)
def create(
    address: Address,
    *,
    readable_body: Annotated[
        bool, typer.Option("--readable-body", help="Add a column with the body as text.")
    ] = False,
    print_sql: PrintSql = False,
    on: On,
) -> Printed:
    """Create a queue table if it does not exist.

    Example: duesweep queue create Billing
    """
    if print_sql:
        names = ["create_queue", *(["add_body_string"] if readable_body else [])]
        return on.script(names, "queue", address)
    with on.session() as session:
        table = session.queue(address)
        table.create(readable_body=readable_body)
    return Printed({"queue": str(table.destination)}, [Line(f"{table.destination} exists now")])


@command(queue, "send", ending=SENT)
def send(
    address: Address,
    *,
    content: Content,
    delay: Annotated[
        str | None,
        typer.Option(
            help="Send it after this time, such as 1d2h3m4s5ms, through the delayed table."
        ),
    ] = None,
    on: On,
) -> Printed:
    """Send a message, now or later.

    Example: duesweep queue send Billing --header Colour=blue --body '{}' --delay 30s
    """
    message = content.message(delay)
    is_delayed = message.delay is not None
    if is_delayed:
        _require_delayed_table(on.loaded().store.kind)
    with on.session() as session:
        table = session.queue(address)
        table.send(message)
    done = "stored for" if is_delayed else "sent to"
    value = {"queue": str(table.destination), "delayed": is_delayed}
    return Printed(value, [Line(f"{done} {table.destination}")])


@command(
    queue,
    "receive",
    ending="the message that was printed last may still be in the queue; those before it are "
    "removed",
    document=None,
)
def receive(
    address: Address,
    *,
    count: Annotated[int, typer.Option(min=1, help="The maximum number of messages.")] = 1,
    on: On,
) -> Any:
    """Remove messages from a queue and print them. With --json each is a line. A message that
    cannot be read is moved to the queue of retry.error_queue, or stays if that is not set.

    Example: duesweep queue receive Billing --count 10 --json
    """
    return _Received(on, address, count)


class _Received:
    """Messages that are printed one by one, each before it is removed: a broken pipe puts it back.
    As JSON each has a line.
    """

    def __init__(self, on: On, address: str, count: int) -> None:
        self._on, self._address, self._count = on, address, count
        self._code = ExitCode.DONE

    def print(self, *, as_json: bool) -> int:
        if is_closed():
            raise ConfigError(
                "Standard output is closed, and a message is removed once it is printed",
                advice="direct it to a file",
            )
        with closing(self._messages()) as messages:
            for one in messages:
                if as_json:
                    value = {"id": one.id, "headers": one.headers, "body": one.body}
                    print(json.dumps(plain(value)))
                else:
                    print_blocks(views.received(one))
                sys.stdout.flush()
        return self._code

    def _messages(self) -> Generator[ReceivedMessage]:
        """Each is removed when the next one is asked for. Poison goes to the error queue; without
        an error queue it stays, and those behind it are not received.
        """
        error_queue = self._on.loaded().retry.error_queue
        with self._on.session() as session:
            for _ in range(self._count):
                with session.queue(self._address).receive() as message:
                    if message is None:
                        return
                    if message.is_poison:
                        _move(message, error_queue, session)
                        self._code = ExitCode.MESSAGES_FAILED
                    else:
                        yield message


def _move(message: ReceivedMessage, error_queue: str | None, session: "TransportSession") -> None:
    if error_queue is None:
        raise ConfigError(
            f"The headers of the message with id {message.id} cannot be read, so it stays in its "
            f"queue ({message.headers})",
            advice="set retry.error_queue, and it is moved to that queue",
        )
    session.queue(error_queue).append(message.id, message.headers_text, message.body)
    told = f"moved the message with id {message.id} to {error_queue}, since its headers cannot be "
    print_blocks([Note(f"{told}read: {message.headers}")])


@command(queue, "peek", ending=NOTHING)
def peek(
    address: Address,
    *,
    on: On,
) -> Printed:
    """Print the number of messages that are not locked; on PostgreSQL an estimate.

    Example: duesweep queue peek Billing
    """
    with on.session() as session:
        table = session.queue(address)
        waiting = table.peek()
    what = "message" if waiting == 1 else "messages"
    value = {"queue": str(table.destination), "messages": waiting}
    return Printed(value, [Line(f"{table.destination}: {waiting:,} {what}")])


@command(queue, "purge", ending=_PURGED)
def purge(
    address: Address,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Confirm: the messages are lost.")] = False,
    on: On,
) -> Printed:
    """Remove all messages that are not locked.

    Example: duesweep queue purge Billing --yes
    """
    if not yes:
        raise ConfigError(
            f"All messages in {address} would be lost", advice="give --yes to confirm"
        )
    with on.session() as session:
        table = session.queue(address)
        return _purged(str(table.destination), table.purge())


@command(queue, "purge-expired", ending=_PURGED)
def purge_expired(
    address: Address,
    *,
    on: On,
) -> Printed:
    """Remove the messages that have expired.

    Example: duesweep queue purge-expired Billing
    """
    with on.session() as session:
        table = session.queue(address)
        purged = table.purge(expired_only=True)
        return _purged(str(table.destination), purged)


def _purged(table: str, count: int) -> Printed:
    return Printed({"queue": table, "purged": count}, [Line(f"{table}: {count:,} purged")])


def _require_delayed_table(kind: str) -> None:
    """Raise `ConfigError` unless the store is a delayed table of the transport that sends."""
    if kind not in SERVERS:
        raise ConfigError(
            "--delay stores a message in the delayed table of the PostgreSQL or SQL Server "
            f"transport, and the store is of kind {kind}",
            advice="send it without a delay, or let the endpoint itself delay it",
        )


# The table of subscriptions.


@command(subscriptions, "create", ending=AGAIN)
def create_subscriptions(
    *, table: Table = _DEFAULT_TABLE, print_sql: PrintSql = False, on: On
) -> Printed:
    """Create the table if it does not exist.

    Example: duesweep subscriptions create
    """
    if print_sql:
        return on.script(["create_subscriptions"], "subscriptions", table)
    with on.session() as session:
        session.subscriptions(table).create()
    return Printed({"table": table}, [Line(f"{table} exists now")])


@command(subscriptions, "list", ending=NOTHING)
def list_subscribers(
    topics: Annotated[list[str], typer.Argument(help="Topics: full names of message types.")],
    *,
    table: Table = _DEFAULT_TABLE,
    on: On,
) -> Printed:
    """Print the addresses that are subscribed to any of these topics.

    Example: duesweep subscriptions list Sales.OrderPlaced
    """
    with on.session() as session:
        addresses = session.subscriptions(table).subscribers(topics)
    return Printed({"addresses": addresses}, map(Line, addresses))


@command(subscriptions, "add", ending=AGAIN)
def add(
    topic: Topic,
    address: Annotated[str, typer.Argument(help="The queue for its messages.")],
    *,
    subscriber: Subscriber,
    table: Table = _DEFAULT_TABLE,
    on: On,
) -> Printed:
    """Subscribe an endpoint to a topic, or move its subscription to another address.

    Example: duesweep subscriptions add Sales.OrderPlaced Billing --subscriber Billing
    """
    with on.session() as session:
        session.subscriptions(table).subscribe(subscriber, address, topic)
    value = {"endpoint": subscriber, "topic": topic, "address": address}
    return Printed(value, [Line(f"{subscriber} is subscribed to {topic}")])


@command(subscriptions, "remove", ending=AGAIN)
def remove(
    topic: Topic, *, subscriber: Subscriber, table: Table = _DEFAULT_TABLE, on: On
) -> Printed:
    """End an endpoint's subscription to a topic.

    Example: duesweep subscriptions remove Sales.OrderPlaced --subscriber Billing
    """
    with on.session() as session:
        was_there = session.subscriptions(table).unsubscribe(subscriber, topic)
    ended = "is no longer" if was_there else "was not"
    value = {"endpoint": subscriber, "topic": topic, "was_subscribed": was_there}
    return Printed(value, [Line(f"{subscriber} {ended} subscribed to {topic}")])
