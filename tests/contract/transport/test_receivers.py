"""The receiver on real servers."""

import threading
from collections import Counter
from datetime import timedelta

from duesweep.core.message import ReceivedMessage
from duesweep_transport.receiver import Receiver, ReceiverOptions
from duesweep_transport.tables import TransportSession
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
