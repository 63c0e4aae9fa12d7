"""Endpoints on RabbitMQ, as a queue of the pipeline."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from duesweep.drivers.rabbitmq import Brokers
from duesweep.errors import ConfigError, DestinationError, MessageError
from duesweep.queues.base import Queue
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.link import Link, service_error
from duesweep.queues.rabbitmq.punctuality import Punctuality
from duesweep.queues.rabbitmq.session import LadderMissingError, RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.stores.base import TaskSession


@dataclass(frozen=True, slots=True)
class RabbitMqQueue(Queue):
    """Endpoints of a vhost. Delivers at least once: what a broker confirmed cannot be taken back.

    `needs_ladder`: early messages are deferred. `is_punctual`: the first of them arrive at the
    moment when they are due. `holds_own_queue`: the endpoint's own queue has to exist.
    """

    brokers: Brokers
    style: Style
    own_queue: str
    max_in_flight: int
    needs_ladder: bool = False
    is_punctual: bool = False
    holds_own_queue: bool = True

    @property
    def shares_transaction(self) -> bool:
        """False: a broker takes no part in a database's transaction."""
        return False

    @property
    def longest_delay(self) -> int:
        """The longest delay of the ladder's 28 levels, in seconds."""
        return ladder.LONGEST_DELAY_SECONDS

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[RabbitMqQueueSession]:  # noqa: ARG002 - apart
        """A session with one connection, for all batches of a task."""
        link = Link(self.brokers, self.max_in_flight)
        # Connect before anything is claimed. If it fails, each destination reports why.
        with suppress(DestinationError):
            link.connect()
        try:
            yield self._session(link)
        finally:
            link.close()

    def check(self, error_queue: str | None) -> None:
        """Connect, and check that the endpoint's own queue, the error queue and the delay ladder
        exist, as far as they are needed.

        Raises `ConfigError` or `QueueError`.
        """
        link = Link(self.brokers, self.max_in_flight)
        try:
            link.connect()
            session = self._session(link)
            if self.needs_ladder:
                session.find_ladder()
            if self.holds_own_queue:
                self._check_own_queue(session)
            if error_queue is not None:
                session.resolve(error_queue)
        except LadderMissingError as error:
            raise ConfigError(
                f"{self.brokers.setting}: {error.text}", advice=error.advice
            ) from error
        except DestinationError as error:
            raise service_error(error) from error
        except MessageError as error:
            raise ConfigError(
                f"retry.error_queue: {error}", advice="correct the setting"
            ) from error
        finally:
            link.close()

    def _session(self, link: Link) -> RabbitMqQueueSession:
        punctuality = Punctuality(is_wanted=self.is_punctual)
        return RabbitMqQueueSession(link, self.style, self.own_queue, punctuality)

    def _check_own_queue(self, session: RabbitMqQueueSession) -> None:
        try:
            session.resolve(None)
        except MessageError as error:
            # On a wrong vhost, every message would fail and be exhausted in the end.
            raise ConfigError(
                f"{self.brokers.setting}.url: no endpoint {self.own_queue} on this broker: {error}",
                advice="check its vhost, or create the endpoint",
            ) from error
