"""Messages over which the broker closes the channel, and does not say which one it was."""

from collections.abc import Iterator

import pytest

from duesweep_testing.builders import DelayedRow, delayed_row
from support.rabbitmq.broker import Broker
from support.rabbitmq.sessions import arrived, bodies, numbered, queue_of, world_on

_LONGEST = 100_000
_CULPRITS = {
    "CC": {"CC": "a@example.com"},
    "BCC": {"BCC": "a"},
    "a reply address of the broker's": {"NServiceBus.ReplyToAddress": "amq.rabbitmq.reply-to"},
}


def _culprit(number: int = 0) -> DelayedRow:
    return delayed_row(more={"CC": "a@example.com"}, body=f"culprit {number}".encode())


@pytest.fixture
def _short_messages_only(billing: Broker) -> Iterator[None]:
    limit = "application:set_env(rabbit, max_message_size, {})."
    billing.server.control("eval", limit.format(_LONGEST))
    yield
    billing.server.control("eval", limit.format(134_217_728))


@pytest.mark.parametrize("more", _CULPRITS.values(), ids=_CULPRITS)
def test_culprit_is_charged_and_the_others_arrive(billing: Broker, more: dict[str, str]) -> None:
    culprit, good = delayed_row(more=more), numbered(20)
    world = world_on(queue_of(billing.url), culprit, *good)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.rows) == set(world.store.attempts) == {culprit.key}
    assert set(arrived(billing, "Billing", len(good))) == bodies(good)


def test_many_culprits_double_each_of_the_others_once_at_the_most(billing: Broker) -> None:
    good = numbered(900)
    culprits = [_culprit(number) for number in range(6)]
    rows = [*culprits[:2], *good[:300], *culprits[2:4], *good[300:], *culprits[4:]]
    world = world_on(queue_of(billing.url), *rows)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.rows) == set(world.store.attempts) == {one.key for one in culprits}
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) <= 2


@pytest.mark.usefixtures("_short_messages_only")
def test_messages_that_are_too_long_do_not_end_a_slice(billing: Broker) -> None:
    long = [delayed_row(body=b"x" * (_LONGEST + 1 + number)) for number in range(6)]
    good = numbered(500)
    world = world_on(queue_of(billing.url), *long, *good)

    (end,) = world.ends(world.sweep())

    assert end.reason is None
    assert set(world.store.attempts) == {row.key for row in long}
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) <= 2


def test_culprit_that_is_tried_again_leaves_the_others_alone(billing: Broker) -> None:
    culprit = _culprit()
    world = world_on(queue_of(billing.url), culprit)
    world.sweep()
    world.clock.advance(3_600)
    world.store.clock.advance(3_600)
    good = numbered(200)
    world.store.rows |= {row.key: row for row in good}

    world.sweep()

    assert world.store.attempts[culprit.key].attempts == 2
    times = arrived(billing, "Billing", len(good))
    assert set(times) == bodies(good)
    assert max(times.values()) == 1


def test_without_the_right_to_look_for_the_culprit_no_message_is_charged(billing: Broker) -> None:
    good = numbered(20)
    world = world_on(queue_of(billing.url), *good[:10], _culprit(), *good[10:])
    # RabbitMQ's own syntax: all but the default exchange.
    billing.server.control(
        "set_permissions", "-p", billing.vhost, "guest", ".*", r"^(?!amq\.default$).*", ".*"
    )

    (end,) = world.ends(world.sweep())

    assert end.reason is not None
    assert "CC" in end.reason
    assert world.store.attempts == {}
