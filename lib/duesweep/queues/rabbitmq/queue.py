"""Endpoints on RabbitMQ as a queue."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from duesweep.drivers.rabbitmq import Brokers
from duesweep.errors import ConfigError, DestinationError, MessageError, QueueError
from duesweep.queues.rabbitmq import ladder
from duesweep.queues.rabbitmq.link import Link
from duesweep.queues.rabbitmq.punctuality import Punctuality
from duesweep.queues.rabbitmq.session import LadderMissingError, RabbitMqQueueSession
from duesweep.queues.rabbitmq.topology import Style
from duesweep.stores.base import TaskSession


@dataclass(frozen=True, slots=True)
class RabbitMqQueue:
    """Endpoints of a vhost. At least once: what a broker has confirmed cannot be taken back.

    `needs_ladder`: messages that are not due yet will be deferred, too, and with `is_punctual`
    the first of them to the moment; `holds_own_queue`: the endpoint's own has to be there.
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
        """A broker is in no database's transaction."""
        return False

    @property
    def longest_delay(self) -> int:
        """What the ladder's 28 levels hold, in seconds."""
        return ladder.LONGEST_DELAY_SECONDS

    @contextmanager
    def open(self, store: TaskSession) -> Iterator[RabbitMqQueueSession]:  # noqa: ARG002 - apart
        """One connection for a task, whatever its batches."""
        link = Link(self.brokers, self.max_in_flight)
        # Before anything is claimed; where it fails, each destination says why.
        with suppress(DestinationError):
            link.connect()
        try:
            yield self._session(link)
        finally:
            link.close()

    def check(self, error_queue: str | None) -> None:
        """Connect, and look for the endpoint's own queue, the error queue and the delay ladder, as
        far as they are needed.
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
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from error
            raise QueueError(error.text, transient=True, advice=error.advice) from error
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
            # On another vhost every message would fail, and be given up in the end.
            raise ConfigError(
                f"{self.brokers.setting}.url leads to no broker of {self.own_queue}: {error}",
                advice="check its vhost, or create the endpoint",
            ) from error
