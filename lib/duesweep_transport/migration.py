"""Moves messages from the first delay ladder to the second. At least once, but not early: a
message is removed from the first ladder only when the second one has confirmed it.

Its headers say when it was sent, and how long it has to wait after that. The rest of that delay
is rounded up, so that no message is early.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from duesweep.core.errors import QueueError
from duesweep.core.policy import delay_level
from duesweep.drivers.rabbitmq.connection import Brokers, Channel, RabbitMqConnection
from duesweep.drivers.rabbitmq.errors import ChannelClosedError
from duesweep.drivers.rabbitmq.publisher import Publisher, PublishResult
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import BrokerQueue, Kind, RabbitMqSetup, Style, Topology
from duesweep_transport.exact import (
    Consumer,
    Copy,
    Delivery,
    Encoded,
    ExactRabbitMqConnection,
)

POISON_QUEUE = "delays-migrate-poison-messages"
TIME_SENT_HEADER = "NServiceBus.TimeSent"

# As NServiceBus writes it: `yyyy-MM-dd HH:mm:ss:ffffff Z`.
_TIME_SENT_LENGTH = len("2026-11-21 08:00:00:123456 Z")
_SECOND = timedelta(seconds=1)
_QUIET_SECONDS = 0.25
_NOTHING_COMES_SECONDS = 60.0
_REFUSALS = {
    PublishResult.RETURNED: "the second ladder lacks a binding; `duesweep rabbitmq delays verify`",
    PublishResult.REFUSED: "RabbitMQ refused it: a queue may be full, or without a leader",
    PublishResult.UNSENDABLE: "its headers are too long to be sent",
}


@dataclass(frozen=True, slots=True)
class PlannedDelay:
    """A message enters the second ladder, to reach its destination in `seconds`."""

    destination: str
    seconds: int

    def copy(self, delivery: Delivery) -> Copy:
        """The message as it enters, without a broker's notes about its way so far."""
        return Copy(
            topology.level_name(delay_level(self.seconds)),
            topology.routing_key(self.seconds, self.destination),
            {},
            {},
            delivery.body,
            delivery.encoded.without(topology.BROKER_HEADERS),
        )


@dataclass(frozen=True, slots=True)
class Poison:
    """It is not known when a message is due, or where it goes; `reason` says why."""

    destination: str | None
    reason: str

    def copy(self, delivery: Delivery) -> Copy:
        """The message as it goes to the queue for poison."""
        return Copy("", POISON_QUEUE, {}, {}, delivery.body, delivery.encoded)


@dataclass(slots=True)
class LevelReport:
    """One queue of the first ladder. `waiting`: messages at the start. `left`: messages that are
    still there. `redelivered`: of the moved and the poison messages, how many the broker had
    delivered before, perhaps to an interrupted run; at most this many exist twice.
    """

    queue: str
    waiting: int
    moved: int = 0
    poison: int = 0
    left: int = 0
    redelivered: int = 0


@dataclass(slots=True)
class MigrationReport:
    """All levels, highest first. `reasons`: why messages were left or are poison, with counts."""

    levels: list[LevelReport] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    is_stopped: bool = False

    @property
    def moved(self) -> int:
        """Messages in the second ladder now."""
        return sum(level.moved for level in self.levels)

    @property
    def poison(self) -> int:
        """Messages in the queue for poison now."""
        return sum(level.poison for level in self.levels)

    @property
    def left(self) -> int:
        """Messages that are still on the levels that were processed."""
        return sum(level.left for level in self.levels)

    @property
    def redelivered(self) -> int:
        """Messages that may exist twice now."""
        return sum(level.redelivered for level in self.levels)

    def note_poison(self, poison: Poison) -> None:
        """Count why a message is poison, with its destination, which the poison queue loses."""
        where = f"for {poison.destination}" if poison.destination else "without destination"
        self.reasons[f"poison {where}: {poison.reason}"] += 1

    def note_left(self, destination: str | None, reason: str) -> None:
        self.reasons[
            f"left, {f'for {destination}' if destination else 'without destination'}: {reason}"
        ] += 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Migration:
    """Moves a vhost's messages from the first ladder to the second, `max_in_flight` at a time."""

    brokers: Brokers
    style: Style
    setting: str
    max_in_flight: int
    now: Callable[[], datetime] = _utc_now

    def count(self) -> MigrationReport:
        """How many messages wait on each level, highest first. Moves none."""
        with RabbitMqConnection(self.brokers) as connection:
            return MigrationReport(_levels(Channel(connection)))

    def run(
        self,
        report: MigrationReport,
        is_stopped: Callable[[], bool],
        tell: Callable[[LevelReport], None],
    ) -> None:
        """Move them, and note the result in `report`, even if it ends with an error. When it
        `is_stopped`, messages in flight are finished first. It will `tell` of each level that has
        begun or made progress.

        From the highest level down: a message whose time on a level ends by then is found on a
        lower one.
        """
        with ExactRabbitMqConnection(self.brokers) as connection:
            channel = Channel(connection)
            levels = _levels(channel)
            if not levels:
                return
            RabbitMqSetup(self.brokers, self.style, (), self.setting).create()
            move = _Move(self, report, connection, channel, is_stopped=is_stopped, tell=tell)
            for level in levels:
                if is_stopped():
                    break
                level.waiting = topology.count(channel, level.queue)
                report.levels.append(level)
                tell(level)
                move.run(level)
            report.is_stopped = is_stopped()


class _Move:
    """The moves of all levels, on one session."""

    def __init__(
        self,
        migration: Migration,
        report: MigrationReport,
        connection: ExactRabbitMqConnection,
        channel: Channel,
        *,
        is_stopped: Callable[[], bool],
        tell: Callable[[LevelReport], None],
    ) -> None:
        self._migration = migration
        self._is_stopped, self._tell = is_stopped, tell
        self._report = report
        self._connection = connection
        self._channel = channel
        self._publisher = Publisher(connection, migration.max_in_flight)
        self._destinations = _Destinations(channel, migration.style)

    def run(self, level: LevelReport) -> None:
        """Move the messages of a level that are there, and the ones that come during that."""
        self._level, self._taken, self._held = level, 0, 0
        limit = self._count_ready()
        if not limit:
            return
        with Consumer(
            self._connection, self._level.queue, self._migration.max_in_flight
        ) as consumer:
            self._run_to(limit, consumer)
            # Messages that came during that. Later ones are left.
            came = self._count_ready() + consumer.unacknowledged - self._held
            self._run_to(self._taken + came, consumer)
            # Messages on their way from the broker are counted nowhere, so let them arrive. Without
            # acknowledgements at most `max_in_flight` come.
            while consumer.take(self._migration.max_in_flight, _QUIET_SECONDS):
                continue
            self._level.left = consumer.unacknowledged + self._count_ready()

    def _run_to(self, limit: int, consumer: Consumer) -> None:
        last, held = time.monotonic(), 0
        # Half of them, so that the other half can come at the same time.
        most = max(self._migration.max_in_flight // 2, 1)
        while self._taken < limit and not self._is_stopped():
            deliveries = consumer.take(most, _QUIET_SECONDS)
            if deliveries:
                self._taken += len(deliveries)
                self._move(deliveries, consumer)
                self._tell(self._level)
                last = time.monotonic()
            elif not self._count_ready():
                return
            elif self._held > held:
                consumer.begin_anew()
                held = self._held
            elif time.monotonic() - last > _NOTHING_COMES_SECONDS:
                raise QueueError(
                    f"RabbitMQ delivers none of the messages of queue {self._level.queue}",
                    advice="run the command again",
                    transient=True,
                )

    def _count_ready(self) -> int:
        return topology.count(self._channel, self._level.queue)

    def _move(self, deliveries: Sequence[Delivery], consumer: Consumer) -> None:
        now = self._migration.now()
        going = [(one, plan) for one in deliveries if (plan := self._plan(one, now)) is not None]
        publisher = self._publisher
        publisher.publish([plan.copy(delivery) for delivery, plan in going])
        publisher.wait(self._migration.brokers.timeouts.driver_seconds)
        results = publisher.take_results()
        safe = [
            one
            for one, result in zip(going, results, strict=True)
            if result is PublishResult.CONFIRMED
        ]
        consumer.acknowledge([delivery for delivery, _ in safe])
        for delivery, plan in safe:
            self._count(delivery, plan)
        for (_, plan), result in zip(going, results, strict=True):
            if result in _REFUSALS:
                self._hold(plan.destination, _REFUSALS[result])
        self._raise_fault()

    def _plan(self, delivery: Delivery, now: datetime) -> PlannedDelay | Poison | None:
        plan = decide(delivery, now)
        if isinstance(plan, Poison):
            self._destinations.create_poison_queue()
            return plan
        problem = self._destinations.problem(plan.destination)
        if problem is not None:
            self._hold(plan.destination, problem)
            return None
        return plan

    def _hold(self, destination: str | None, reason: str) -> None:
        self._held += 1
        self._report.note_left(destination, reason)

    def _count(self, delivery: Delivery, plan: PlannedDelay | Poison) -> None:
        self._level.redelivered += delivery.is_redelivered
        if isinstance(plan, Poison):
            self._level.poison += 1
            self._report.note_poison(plan)
        else:
            self._level.moved += 1

    def _raise_fault(self) -> None:
        if self._publisher.fault is not None:
            raise self._publisher.fault
        blocked = self._connection.blocked_reason
        if blocked is not None:
            raise QueueError(blocked, transient=True)


class _Destinations:
    """Each destination is looked for once, and bound to the delivery exchange. A message that
    cannot leave the ladder must not enter it: it would block all messages of its level
    (NServiceBus.RabbitMQ#1407).
    """

    def __init__(self, channel: Channel, style: Style) -> None:
        self._channel = channel
        self._style = style
        self._problems: dict[str, str | None] = {}
        self._takes_poison = False

    def problem(self, name: str) -> str | None:
        """Why messages for an endpoint cannot enter the ladder; None if they can."""
        if name not in self._problems:
            self._problems[name] = self._prepare(name)
        return self._problems[name]

    def create_poison_queue(self) -> None:
        """Create the queue for poison if it does not exist."""
        if not self._takes_poison and not topology.is_there(
            self._channel, Kind.QUEUE, POISON_QUEUE
        ):
            # Without arguments, as NServiceBus's own tool declares it.
            topology.create(self._channel, Topology(queues=(BrokerQueue(POISON_QUEUE, {}),)))
        self._takes_poison = True

    def _prepare(self, name: str) -> str | None:
        try:
            for kind in self._kinds():
                if not topology.is_there(self._channel, kind, name):
                    return f"there is no {kind} {name}; run `duesweep rabbitmq endpoint create`"
            for binding in topology.way_out(self._style, name):
                topology.bind(self._channel, binding)
        except ChannelClosedError as error:
            return str(error)
        return None

    def _kinds(self) -> Iterator[Kind]:
        yield Kind.QUEUE
        if self._style is Style.CONVENTIONAL:
            yield Kind.EXCHANGE


def _levels(channel: Channel) -> list[LevelReport]:
    names = [
        topology.level_name(level, topology.FIRST_PREFIX)
        for level in reversed(range(topology.LEVELS))
    ]
    return [
        LevelReport(name, topology.count(channel, name))
        for name in names
        if topology.is_there(channel, Kind.QUEUE, name)
    ]


def decide(delivery: Delivery, now: datetime) -> PlannedDelay | Poison:
    """The target of a message, at the time `now`."""
    destination = topology.destination_of(delivery.routing_key)
    if destination is None:
        return Poison(None, f"{delivery.routing_key!r} is not a routing key of a delay ladder")
    due = _due(delivery.encoded)
    if isinstance(due, str):
        return Poison(destination, due)
    seconds = max(-((now - due) // _SECOND), 0)
    if seconds > topology.LONGEST_DELAY_SECONDS:
        return Poison(destination, f"due {due:%Y-%m-%d}, which is longer than a ladder holds")
    return PlannedDelay(destination, seconds)


def _due(encoded: Encoded) -> datetime | str:
    """When the message is due, or why that is not known."""
    delay = encoded.number(topology.DELAY_HEADER)
    sent = _read_time_sent(encoded.text(TIME_SENT_HEADER))
    for name, value in ((topology.DELAY_HEADER, delay), (TIME_SENT_HEADER, sent)):
        if value is None:
            return f"header {name} is missing or cannot be read"
    assert delay is not None
    assert sent is not None
    try:
        return sent + timedelta(seconds=delay)
    except OverflowError:
        return f"header {topology.DELAY_HEADER} is {delay}, which is after the year 9999"


def _read_time_sent(text: str | None) -> datetime | None:
    # Python would also read fewer digits of a fraction, and other zones than Z.
    if text is None or len(text) != _TIME_SENT_LENGTH or not text.endswith(" Z"):
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f %z")
    except ValueError:
        return None
