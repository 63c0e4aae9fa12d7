"""The receiver: when it peeks and receives, the fate of messages, and its options' limits."""

import threading
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from duesweep.core.errors import ConfigError, QueueNotFoundError, StoreError
from duesweep.core.headers import FORWARD_DESTINATION, read_json, write_json
from duesweep.core.message import EXCEPTION_TYPE, FAILED_QUEUE, OutgoingMessage, ReceivedMessage
from duesweep_transport.receiver import ReceiverOptions
from duesweep_transport.tables import TransportSession
from support.memory_transport import (
    CountedStop,
    Handler,
    MemoryTransport,
    receive,
    receiver_of,
    texts,
)


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport("Billing", "Other", "error")


def test_empty_queue_is_peeked_at_once_a_delay(transport: MemoryTransport) -> None:
    stop = CountedStop(3)

    receive(transport, Handler(), ReceiverOptions(peek_delay=timedelta(seconds=5)), stop)

    assert stop.waited == [5.0, 5.0, 5.0]
    assert transport.peeked == [0, 0, 0]


def test_what_was_peeked_at_is_received_without_a_wait(transport: MemoryTransport) -> None:
    transport.put("Billing", *texts(5))
    handler = Handler()

    stop = receive(transport, handler)

    assert handler.handled == texts(5)
    assert transport.peeked == [5, 0]
    assert isinstance(stop, CountedStop)
    assert stop.waited == [1.0]
    assert transport.headers("Billing") == []


def test_peeks_again_after_each_batch(transport: MemoryTransport) -> None:
    transport.put("Billing", *texts(5))

    receive(transport, Handler(), ReceiverOptions(concurrency=1, peek_batch_size=2))

    assert transport.peeked == [5, 3, 1, 0]


def test_receive_that_finds_nothing_ends_the_round(transport: MemoryTransport) -> None:
    transport.put("Billing", *texts(50))
    receives: list[str] = []

    def take_all_away(name: str) -> None:
        if name == "receive":
            receives.append(name)
            if len(receives) == 2:
                transport.queues["Billing"].clear()

    transport.before = take_all_away
    receive(transport, Handler())

    assert len(receives) <= 3  # the second found nothing; a third may have been under way
    assert transport.peeked == [50, 0]


def test_no_more_are_handled_at_once_than_the_limit(transport: MemoryTransport) -> None:
    transport.put("Billing", *texts(30))
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
    receive(transport, handler, ReceiverOptions(concurrency=3))

    assert sorted(handler.handled) == sorted(texts(30))
    assert max(most) == 3


def test_slow_message_does_not_keep_others_from_being_received(transport: MemoryTransport) -> None:
    transport.put("Billing", "{}")
    others_are_done = threading.Event()

    def handle(message: ReceivedMessage, _: TransportSession) -> None:
        if message.headers:
            others_are_done.set()
        else:
            transport.put("Billing", '{"n":"1"}')
            assert others_are_done.wait(60)

    receive(transport, handle, ReceiverOptions(concurrency=2), _StopAfterWaits(others_are_done))

    assert transport.headers("Billing") == []


class _StopAfterWaits(threading.Event):
    """Is set by the first wait that finds `done` set."""

    def __init__(self, done: threading.Event) -> None:
        super().__init__()
        self._done = done

    def wait(self, timeout: float | None = None) -> bool:
        if self._done.wait(min(timeout or 0, 0.01)):
            self.set()
        return self.is_set()


def test_message_whose_handler_fails_is_released_and_not_tried_at_once(
    transport: MemoryTransport,
) -> None:
    transport.put("Billing", "{}", '{"n":"2"}')

    def fail(_: ReceivedMessage) -> None:
        raise ValueError("no")

    stop = CountedStop(3)
    handler = Handler(fail)
    with capture_logs() as logs:
        receive(transport, handler, stop=stop)

    assert handler.handled == ["{}"] * 3
    assert stop.waited == [1.0] * 3
    assert transport.headers("Billing") == ["{}", '{"n":"2"}']
    assert [log["event"] for log in logs] == ["handler_failed"] * 3
    assert "ValueError('no')" in logs[0]["error"]


def test_what_a_failing_handler_sent_is_not_sent(transport: MemoryTransport) -> None:
    transport.put("Billing", '{"n":"good"}', '{"n":"bad"}')

    def handle(message: ReceivedMessage, session: TransportSession) -> None:
        session.queue("Other").send(OutgoingMessage({"from": message.headers_text}, None))
        if "bad" in message.headers_text:
            raise KeyError

    receive(transport, handle, stop=CountedStop(1))

    assert transport.headers("Billing") == ['{"n":"bad"}']
    assert transport.headers("Other") == ['{"from":"{\\"n\\":\\"good\\"}"}']


@pytest.mark.parametrize("statement", ["peek", "receive"])
def test_fault_that_passes_is_logged_and_tried_again(
    transport: MemoryTransport, statement: str
) -> None:
    transport.put("Billing", "{}")
    faults = [StoreError("restarting", transient=True)]

    def fail_once(name: str) -> None:
        if name == statement and faults:
            raise faults.pop()

    transport.before = fail_once
    handler = Handler()
    with capture_logs() as logs:
        receive(transport, handler, stop=CountedStop(2))

    assert handler.handled == ["{}"]
    assert [(log["event"], log["error"]) for log in logs] == [("receive_failed", "restarting")]


@pytest.mark.parametrize("statement", ["peek", "receive"])
def test_fault_that_does_not_pass_is_raised(transport: MemoryTransport, statement: str) -> None:
    transport.put("Billing", *texts(10))

    def fail(name: str) -> None:
        if name == statement:
            raise StoreError("gone", transient=False)

    transport.before = fail
    with pytest.raises(StoreError, match="gone"):
        receive(transport, Handler(), ReceiverOptions(concurrency=2), CountedStop(9))
    assert transport.sessions == 0
    assert len(transport.headers("Billing")) == 10


@pytest.mark.parametrize("missing", ["Billing", "error"])
def test_queue_that_is_not_there_is_raised_before_anything_is_received(missing: str) -> None:
    transport = MemoryTransport(*({"Billing", "error"} - {missing}))

    with pytest.raises(QueueNotFoundError, match=missing):
        receive(transport, Handler())


@pytest.mark.parametrize(("purges", "handled"), [(True, []), (False, texts(1_001))])
def test_receiver_that_purges_on_startup_receives_nothing_that_was_there(
    transport: MemoryTransport, *, purges: bool, handled: list[str]
) -> None:
    transport.put("Billing", *texts(1_001))
    transport.put("Other", *texts(1))
    handler = Handler()

    with capture_logs() as logs:
        receive(transport, handler, ReceiverOptions(concurrency=1, purge_on_startup=purges))

    assert handler.handled == handled
    assert transport.headers("Billing") == []
    assert transport.headers("Other") == texts(1)
    told = [log for log in logs if log["event"] == "purged_on_startup"]
    assert [log["messages"] for log in told] == ([1_001] if purges else [])


def test_messages_that_come_after_a_purge_on_startup_are_received(
    transport: MemoryTransport,
) -> None:
    handler = Handler()

    def arrive(name: str) -> None:
        if name == "peek" and not transport.peeked:
            transport.put("Billing", *texts(1))

    transport.before = arrive
    receive(transport, handler, ReceiverOptions(concurrency=1, purge_on_startup=True))

    assert handler.handled == texts(1)


def test_poison_goes_to_the_error_queue_as_it_is(transport: MemoryTransport) -> None:
    transport.put("Billing", "no JSON", "{}")
    handler = Handler()
    poison = transport.queues["Billing"][0]
    poison.body = b"\0"

    with capture_logs() as logs:
        receive(transport, handler)

    assert handler.handled == ["{}"]
    (moved,) = transport.queues["error"]
    assert (moved.id, moved.headers, moved.body) == (poison.id, "no JSON", b"\0")
    assert [log["event"] for log in logs] == ["poison"]


def test_delayed_message_goes_on_to_its_destination(transport: MemoryTransport) -> None:
    name = FORWARD_DESTINATION
    transport.put("Billing", f'{{"a":"b","{name}":"Other"}}', f'{{"c":"d","{name}":"Billing"}}')
    handler = Handler()

    receive(transport, handler)

    assert transport.headers("Other") == ['{"a":"b"}']
    # Its own: handled here.
    assert handler.handled == [f'{{"c":"d","{name}":"Billing"}}']


@pytest.mark.parametrize("destination", ["Nowhere", " "])
def test_delayed_message_without_a_way_goes_to_the_error_queue_with_the_reason(
    transport: MemoryTransport, destination: str
) -> None:
    name = FORWARD_DESTINATION
    transport.put("Billing", write_json({"a": "b", name: destination}))
    handler = Handler()

    receive(transport, handler)

    assert handler.handled == []
    headers = read_json(transport.headers("error")[0])
    assert headers["a"] == "b"
    assert headers[FAILED_QUEUE] == destination
    assert str(headers[EXCEPTION_TYPE]).startswith("duesweep.errors.")
    assert name not in headers


def test_peek_delay_beyond_a_time_to_be_received_is_cautioned_about_once(
    transport: MemoryTransport,
) -> None:
    short = '{"NServiceBus.TimeToBeReceived":"00:00:00.5000000"}'
    transport.put("Billing", short, short, '{"NServiceBus.TimeToBeReceived":"00:00:01"}')

    with capture_logs() as logs:
        receive(transport, Handler())

    assert len(logs) == 1
    assert "longer than the time to be received of 0.5 s" in logs[0]["caution"]


def test_peek_delay_that_is_not_recommended_is_cautioned_about() -> None:
    options = ReceiverOptions(peek_delay=timedelta(seconds=11))

    with capture_logs() as logs:
        receiver_of(MemoryTransport(), options)

    assert [(log["log_level"], log["queue"]) for log in logs] == [("warning", "Billing")]
    assert "11 s is not recommended" in logs[0]["caution"]


def test_defaults_are_the_transports() -> None:
    options = ReceiverOptions()

    assert options.peek_delay == timedelta(seconds=1)
    assert options.concurrency >= 2
    assert options.peek_batch >= 100


@pytest.mark.parametrize(
    ("concurrency", "given", "expected"), [(1, None, 100), (30, None, 300), (30, 50, 50)]
)
def test_peek_batch_is_as_large_as_the_threads_need(
    concurrency: int, given: int | None, expected: int
) -> None:
    assert ReceiverOptions(concurrency=concurrency, peek_batch_size=given).peek_batch == expected


@pytest.mark.parametrize(
    ("milliseconds", "cautions"),
    [(1, 1), (99, 1), (100, 0), (1_000, 0), (10_000, 0), (10_001, 1), (60_000, 1)],
)
def test_delay_outside_of_what_is_recommended_is_cautioned_about(
    milliseconds: int, cautions: int
) -> None:
    told = ReceiverOptions(peek_delay=timedelta(milliseconds=milliseconds)).cautions()

    assert len(told) == cautions
    assert all("100 ms to 10 s are recommended" in caution for caution in told)


@pytest.mark.parametrize("milliseconds", [-1, 0])
def test_delay_of_nothing_is_refused(milliseconds: int) -> None:
    with pytest.raises(ConfigError, match="give 100 ms to 10 s"):
        ReceiverOptions(peek_delay=timedelta(milliseconds=milliseconds))


def test_batches_and_threads_of_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="peek batch size of 0"):
        ReceiverOptions(peek_batch_size=0)
    with pytest.raises(ConfigError, match="concurrency limit of 0"):
        ReceiverOptions(concurrency=0)
