"""Queue tables that many create at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg

from duesweep.core.address import TableName
from duesweep.drivers.statements import statement
from duesweep.queues.operations import open_session
from support.endpoint import Endpoint
from support.operations.steps import message, receive_all
from support.operations.subjects import Subject


def test_queue_is_created_once_by_all_who_create_it_at_once(subject: Subject) -> None:
    barrier = threading.Barrier(4)

    def create(name: str) -> None:
        with open_session(subject.transport) as session:
            barrier.wait(60)
            session.queue(subject.address(name)).create(readable_body=True)

    for attempt in range(5):
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(create, f"Queue{attempt}") for _ in range(4)]:
                done.result()
        with open_session(subject.transport) as session:
            queue = session.queue(subject.address(f"Queue{attempt}"))
            queue.send(message())
            assert list(receive_all(queue)) == [1]


def test_statement_of_postgresql_alone_can_be_run_by_many_at_once(endpoint: Endpoint) -> None:
    # `duesweep setup` runs it too, and prints it for others to run.
    barrier = threading.Barrier(4)

    def create(_: int) -> None:
        with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
            for number in range(30):
                text = statement("postgresql", "create_queue").format(
                    queue=TableName("public", f"Queue{number}")
                )
                barrier.wait(60)
                connection.execute(text.encode())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(4)))

    assert len(endpoint.fetch("SELECT FROM pg_class WHERE relname ~ '^Queue[0-9]+$'")) == 30
