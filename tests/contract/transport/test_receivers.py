"""The receiver on real servers: when it peeks and receives, and the fate of messages."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from duesweep.core.errors import QueueNotFoundError, StoreError
from duesweep.core.headers import FORWARD_DESTINATION, read_json, write_json
from duesweep.core.message import EXCEPTION_TYPE, FAILED_QUEUE
from duesweep_transport.receiver import Handle, Receiver, ReceiverOptions
from duesweep_transport.tables import QueueTable, TransportSession
from duesweep_transport.values import OutgoingMessage, ReceivedMessage
from support.transport import (
    BILLING,
    Subject,
    fill,
    message,
    number_of,
    receive_all,
    rows,
    transport_of,
)
from support.waiting import until

PATIENT = ReceiverOptions(concurrency=4, peek_delay=timedelta(milliseconds=100))
ONE = ReceiverOptions(concurrency=1, peek_delay=timedelta(milliseconds=100))


class Running:
    """Receivers in threads of their own."""

    def __init__(self, *receivers: Receiver) -> None:
        self.handled: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=receiver.run, args=(self._handle, self._stop), daemon=True)
            for receiver in receivers
        ]

    def __enter__(self) -> "Running":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _handle(self, received: ReceivedMessage, session: TransportSession) -> None:
        session.queue("Answers").send(message(number_of(received) or 0))
        with self._lock:
            self.handled[number_of(received) or 0] += 1


def test_two_receivers_of_four_threads_handle_each_message_once(
    skipping: Subject, session: TransportSession
) -> None:
    fill(session.queue("error"), 0)
    answers = fill(session.queue("Answers"), 0)
    with session.transaction():
        fill(session.queue(BILLING), 500)
    receivers = [Receiver(transport_of(skipping), BILLING, "error", PATIENT) for _ in range(2)]

    with Running(*receivers) as running:
        until(lambda: sum(running.handled.values()) >= 500)
        until(lambda: session.queue(BILLING).peek() == 0)

    assert running.handled == Counter(range(1, 501))
    assert sorted(receive_all(answers), key=int) == list(range(1, 501))


def test_receiver_of_one_thread_finds_what_comes_while_it_waits(
    subject: Subject, session: TransportSession
) -> None:
    fill(session.queue("error"), 0)
    fill(session.queue("Answers"), 0)
    queue = fill(session.queue(BILLING), 2)

    with Running(Receiver(transport_of(subject), BILLING, "error", ONE)) as running:
        until(lambda: len(running.handled) == 2)
        queue.send(message(3))
        until(lambda: len(running.handled) == 3)

    assert rows(subject, queue.destination) == []
    assert list(receive_all(session.queue("Answers"))) == [1, 2, 3]


class CountedStop(threading.Event):
    """Is set after this many waits, none of which takes any time; it keeps how long each would."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self._left = waits
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        self._left -= 1
        if self._left <= 0:
            self.set()
        return self.is_set()


class Handler:
    """A handler that notes its messages; `then` may raise."""

    def __init__(self, then: Callable[[ReceivedMessage], None] = lambda _: None) -> None:
        self.handled: list[str] = []
        self._then = then

    def __call__(self, received: ReceivedMessage, _: TransportSession) -> None:
        self.handled.append(received.headers_text)
        self._then(received)


class Stage:
    """Queues Billing, Other and error, and receivers of Billing."""

    def __init__(self, subject: Subject, session: TransportSession) -> None:
        self._transport, self._subject, self._session = transport_of(subject), subject, session
        self._open: list[TransportSession] = []
        for name in (BILLING, "Other", "error"):
            session.queue(name).create()

    @contextmanager
    def connect(self) -> Iterator[TransportSession]:
        with self._transport.connect() as session:
            self._open.append(session)
            try:
                yield session
            finally:
                self._open.remove(session)

    def put(self, *headers: str, queue: str = BILLING) -> None:
        with self._session.transaction():
            for text in headers:
                self._session.queue(queue).append(uuid4(), text, None)

    def headers(self, queue: str) -> list[str]:
        place = self._session.queue(queue).destination
        return [row[0] for row in rows(self._subject, place)]

    def receive(
        self,
        handle: Handle,
        stop: threading.Event | None = None,
        *,
        concurrency: int = 1,
        **options: Any,
    ) -> None:
        chosen = ReceiverOptions(concurrency=concurrency, **options)
        try:
            Receiver(self, BILLING, "error", chosen).run(handle, stop or CountedStop(1))  # type: ignore[arg-type]
        finally:
            assert self._open == []


@pytest.fixture
def stage(skipping: Subject, session: TransportSession) -> Stage:
    return Stage(skipping, session)


@pytest.fixture
def peeked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages that each peek found."""
    found: list[int] = []
    peek = QueueTable.peek

    def note(queue: QueueTable, *most: int) -> int:
        found.append(peek(queue, *most))
        return found[-1]

    monkeypatch.setattr(QueueTable, "peek", note)
    return found


def _before(patch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Act before each peek or receive."""
    method = getattr(QueueTable, name)

    def acted(*arguments: Any) -> Any:
        act()
        return method(*arguments)

    patch.setattr(QueueTable, name, acted)


def _texts(count: int) -> list[str]:
    return [f'{{"n":"{number}"}}' for number in range(count)]


def test_empty_queue_is_peeked_at_once_a_delay(stage: Stage, peeked: list[int]) -> None:
    stop = CountedStop(3)

    stage.receive(Handler(), stop, peek_delay=timedelta(seconds=5))

    assert stop.waited == [5.0, 5.0, 5.0]
    assert peeked == [0, 0, 0]


def test_what_was_peeked_at_is_received_without_a_wait(stage: Stage, peeked: list[int]) -> None:
    stage.put(*_texts(5))
    handler, stop = Handler(), CountedStop(1)

    stage.receive(handler, stop)

    assert handler.handled == _texts(5)
    assert peeked == [5, 0]
    assert stop.waited == [1.0]
    assert stage.headers(BILLING) == []


def test_peeks_again_after_each_batch(stage: Stage, peeked: list[int]) -> None:
    stage.put(*_texts(5))

    stage.receive(Handler(), peek_batch_size=2)

    assert peeked == [2, 2, 1, 0]


def test_receive_that_finds_nothing_ends_the_round(
    stage: Stage, session: TransportSession, peeked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put(*_texts(50))
    receives: list[str] = []

    def take_all_away() -> None:
        receives.append("receive")
        if len(receives) == 2:
            session.queue(BILLING).purge()

    _before(monkeypatch, "receive", take_all_away)
    stage.receive(Handler())

    assert len(receives) <= 3  # the second found nothing; a third may have been under way
    assert peeked == [50, 0]


def test_no_more_are_handled_at_once_than_the_limit(stage: Stage) -> None:
    stage.put(*_texts(30))
    barrier = threading.Barrier(3)
    lock = threading.Lock()
    now: set[int] = set()
    most: list[int] = []

    def meet(_: ReceivedMessage) -> None:
        with lock:
            now.add(threading.get_ident())
            most.append(len(now))
        # Ten rounds of three: were there fewer threads, it would break.
        barrier.wait(60)
        with lock:
            now.discard(threading.get_ident())

    handler = Handler(meet)
    stage.receive(handler, concurrency=3)

    assert sorted(handler.handled) == sorted(_texts(30))
    assert max(most) == 3


def test_slow_message_does_not_keep_others_from_being_received(stage: Stage) -> None:
    stage.put("{}")
    others_are_done = threading.Event()

    def handle(received: ReceivedMessage, _: TransportSession) -> None:
        if received.headers:
            others_are_done.set()
        else:
            stage.put('{"n":"1"}')
            assert others_are_done.wait(60)

    stage.receive(handle, _StopAfterWaits(others_are_done), concurrency=2)

    assert stage.headers(BILLING) == []


class _StopAfterWaits(threading.Event):
    """Is set by the first wait that finds `done` set."""

    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self._done = done

    def wait(self, timeout: float | None = None) -> bool:
        if self._done.wait(min(timeout or 0, 0.01)):
            self.set()
        return self.is_set()


def test_message_whose_handler_fails_is_released_and_not_tried_at_once(stage: Stage) -> None:
    stage.put("{}", '{"n":"2"}')

    def fail(_: ReceivedMessage) -> None:
        raise ValueError("no")

    stop = CountedStop(3)
    handler = Handler(fail)
    with capture_logs() as logs:
        stage.receive(handler, stop)

    assert handler.handled == ["{}"] * 3
    assert stop.waited == [1.0] * 3
    assert stage.headers(BILLING) == ["{}", '{"n":"2"}']
    assert [log["event"] for log in logs] == ["handler_failed"] * 3
    assert "ValueError('no')" in logs[0]["error"]


def test_what_a_failing_handler_sent_is_not_sent(stage: Stage) -> None:
    stage.put('{"n":"good"}', '{"n":"bad"}')

    def handle(received: ReceivedMessage, session: TransportSession) -> None:
        session.queue("Other").send(OutgoingMessage({"from": received.headers_text}, None))
        if "bad" in received.headers_text:
            raise KeyError

    stage.receive(handle)

    assert stage.headers(BILLING) == ['{"n":"bad"}']
    assert stage.headers("Other") == ['{"from":"{\\"n\\":\\"good\\"}"}']


@pytest.mark.parametrize("method", ["peek", "receive"])
def test_fault_that_passes_is_logged_and_tried_again(
    stage: Stage, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put("{}")
    faults = [StoreError("restarting", transient=True)]

    def fail_once() -> None:
        if faults:
            raise faults.pop()

    _before(monkeypatch, method, fail_once)
    handler = Handler()
    with capture_logs() as logs:
        stage.receive(handler, CountedStop(2))

    assert handler.handled == ["{}"]
    assert [(log["event"], log["error"]) for log in logs] == [("receive_failed", "restarting")]


@pytest.mark.parametrize("method", ["peek", "receive"])
def test_fault_that_does_not_pass_is_raised(
    stage: Stage, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put(*_texts(10))

    def fail() -> None:
        raise StoreError("gone", transient=False)

    _before(monkeypatch, method, fail)
    with pytest.raises(StoreError, match="gone"):
        stage.receive(Handler(), CountedStop(9), concurrency=2)
    assert len(stage.headers(BILLING)) == 10


@pytest.mark.parametrize("missing", [BILLING, "error"])
def test_queue_that_is_not_there_is_raised_before_anything_is_received(
    missing: str, stage: Stage, subject: Subject
) -> None:
    subject.execute(f"DROP TABLE {subject.table(missing)}")

    with pytest.raises(QueueNotFoundError, match=missing):
        stage.receive(Handler())


@pytest.mark.parametrize(("purges", "handled"), [(True, []), (False, _texts(1_001))])
def test_receiver_that_purges_on_startup_receives_nothing_that_was_there(
    stage: Stage, *, purges: bool, handled: list[str]
) -> None:
    stage.put(*_texts(1_001))
    stage.put(*_texts(1), queue="Other")
    handler = Handler()

    with capture_logs() as logs:
        stage.receive(handler, purge_on_startup=purges)

    assert handler.handled == handled
    assert stage.headers(BILLING) == []
    assert stage.headers("Other") == _texts(1)
    purged = [log for log in logs if log["event"] == "purged_on_startup"]
    assert [log["messages"] for log in purged] == ([1_001] if purges else [])


def test_messages_that_come_after_a_purge_on_startup_are_received(
    stage: Stage, peeked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler()

    def arrive() -> None:
        if not peeked:
            stage.put(*_texts(1))

    _before(monkeypatch, "peek", arrive)
    stage.receive(handler, purge_on_startup=True)

    assert handler.handled == _texts(1)


def test_poison_goes_to_the_error_queue_as_it_is(stage: Stage, session: TransportSession) -> None:
    poison = uuid4()
    session.queue(BILLING).append(poison, "no JSON", b"\0")
    stage.put("{}")
    handler = Handler()

    with capture_logs() as logs:
        stage.receive(handler)

    assert handler.handled == ["{}"]
    with session.queue("error").receive() as moved:
        assert moved is not None
        assert (moved.id, moved.headers_text, moved.body) == (poison, "no JSON", b"\0")
    assert [log["event"] for log in logs] == ["poison"]


def test_delayed_message_goes_on_to_its_destination(stage: Stage) -> None:
    name = FORWARD_DESTINATION
    stage.put(f'{{"a":"b","{name}":"Other"}}', f'{{"c":"d","{name}":"Billing"}}')
    handler = Handler()

    stage.receive(handler)

    assert stage.headers("Other") == ['{"a":"b"}']
    # Its own: handled here.
    assert handler.handled == [f'{{"c":"d","{name}":"Billing"}}']


def test_delayed_message_that_its_queue_refuses_does_not_hold_up_those_behind_it(
    endpoint: Subject,
) -> None:
    endpoint.set_up()
    with transport_of(endpoint).connect() as session:
        stage, handler = Stage(endpoint, session), Handler()
        endpoint.execute('ALTER TABLE "Other" ADD CHECK (false)')
        stage.put(f'{{"a":"b","{FORWARD_DESTINATION}":"Other"}}', "{}")

        # It would raise a fault that lasts.
        with suppress(StoreError):
            stage.receive(handler)

        assert handler.handled == ["{}"]
        assert (stage.headers("Other"), stage.headers(BILLING)) == ([], [])
        headers = read_json(stage.headers("error")[0])
        assert "violates check constraint" in str(headers["NServiceBus.ExceptionInfo.Message"])


@pytest.mark.parametrize("destination", ["Nowhere", " "])
def test_delayed_message_without_a_way_goes_to_the_error_queue_with_the_reason(
    stage: Stage, destination: str
) -> None:
    name = FORWARD_DESTINATION
    stage.put(write_json({"a": "b", name: destination}))
    handler = Handler()

    stage.receive(handler)

    assert handler.handled == []
    headers = read_json(stage.headers("error")[0])
    assert headers["a"] == "b"
    assert headers[FAILED_QUEUE] == destination
    assert str(headers[EXCEPTION_TYPE]).startswith("duesweep.errors.")
    assert name not in headers


def test_peek_delay_beyond_a_time_to_be_received_is_cautioned_about_once(stage: Stage) -> None:
    short = '{"NServiceBus.TimeToBeReceived":"00:00:00.5000000"}'
    stage.put(short, short, '{"NServiceBus.TimeToBeReceived":"00:00:01"}')

    with capture_logs() as logs:
        stage.receive(Handler())

    assert len(logs) == 1
    assert "longer than the time to be received of 0.5 s" in logs[0]["caution"]
