"""A lack of file descriptors is named as such, whichever library meets it."""

import errno

import pytest

from duesweep.core.errors import NO_DESCRIPTORS, DuesweepError, StoreError, lacks_descriptors
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.core.result import exit_code_of
from duesweep.drivers.postgresql.session import connect
from duesweep.drivers.rabbitmq.connection import Brokers, RabbitMqConnection
from duesweep.operations.run import Run
from duesweep.operations.watch import watch
from duesweep.sweep.stop import Stop
from support.commands import run
from support.descriptors import descriptors_left
from support.endpoint import Endpoint


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connection_to_postgresql_says_so(endpoint: Endpoint, left: int, host: str) -> None:
    dsn = endpoint.dsn.replace("127.0.0.1", host)
    with connect(dsn, DEFAULT_TIMEOUTS.task):
        pass

    with (
        pytest.raises(StoreError, match=NO_DESCRIPTORS.text) as refused,
        descriptors_left(left),
        connect(dsn, DEFAULT_TIMEOUTS.task),
    ):
        pytest.fail("connected")

    assert refused.value.transient
    assert refused.value.advice == NO_DESCRIPTORS.advice


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("scheme", ["amqp", "amqps"])
def test_connection_to_rabbitmq_says_so(left: int, scheme: str) -> None:
    brokers = Brokers((f"{scheme}://u:p@127.0.0.1:1/",), "queues.default")

    with pytest.raises(DuesweepError) as refused, descriptors_left(left):
        RabbitMqConnection(brokers)

    if left < 2:
        assert NO_DESCRIPTORS.text in str(refused.value)
    assert exit_code_of(refused.value) == 4


def test_command_without_descriptors_ends_with_a_sentence(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")
    file = str(endpoint.config_file(breaker__trigger_seconds=1))
    assert run("sweep", "--config", file).code == 0
    endpoint.delay("Billing")

    for left in range(8):
        with descriptors_left(left):
            done = run("sweep", "--config", file)

        assert done.code in {0, 2, 4}, done.told
        reasons = (NO_DESCRIPTORS.text, "Too many open files")
        assert done.code == 0 or any(reason in done.err for reason in reasons)
    assert run("sweep", "--config", file).code == 0
    assert len(endpoint.queue_rows("Billing")) == 2


def test_watch_waits_for_descriptors() -> None:
    stop, runs = Stop(), list[Run]()
    errors = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENOSPC, "full")]

    def note(run: Run) -> None:
        runs.append(run)
        stop.wait = lambda _: False  # type: ignore[method-assign]

    def tick() -> Run:
        raise errors.pop(0)

    with pytest.raises(OSError, match="full"):
        watch("nsb", tick, stop, [note], most_seconds=1)

    assert [NO_DESCRIPTORS.text in str(run.error) for run in runs] == [True]


def test_other_errors_are_not_taken_for_it() -> None:
    assert not lacks_descriptors(OSError(errno.ENOENT, "No such file"))
    assert lacks_descriptors(StoreError("[Errno 24] Too many open files", transient=True))
