"""Subscriptions, on each transport."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from duesweep.core.errors import ConfigError
from duesweep_transport.tables import Subscriptions, TransportSession
from support.transport import Subject, address, transport_of

PLACED, BILLED = "Sales.Messages.OrderPlaced", "Sales.Messages.OrderBilled"


@pytest.fixture
def subscriptions(session: TransportSession) -> Subscriptions:
    """An empty table of subscriptions."""
    found = session.subscriptions()
    found.create()
    return found


def _address(session: TransportSession, name: str) -> str:
    return str(session.queue(name).destination)


def test_subscribers_are_found_by_any_of_the_topics_each_once(
    session: TransportSession, subscriptions: Subscriptions
) -> None:
    subscriptions.subscribe("Shipping", "Shipping", PLACED)
    subscriptions.subscribe("Shipping", "Shipping", BILLED)
    subscriptions.subscribe("Billing", "Billing", PLACED)

    billing, shipping = _address(session, "Billing"), _address(session, "Shipping")
    assert subscriptions.subscribers([PLACED]) == [billing, shipping]
    assert subscriptions.subscribers([PLACED, BILLED, "None"]) == [billing, shipping]
    assert subscriptions.subscribers([BILLED]) == [shipping]
    assert subscriptions.subscribers(["None"]) == []


def test_later_subscription_moves_the_earlier(
    session: TransportSession, subscriptions: Subscriptions
) -> None:
    subscriptions.subscribe("Shipping", "Old", PLACED)
    subscriptions.subscribe("Shipping", "New", PLACED)
    subscriptions.subscribe("Shipping", "New", PLACED)

    assert subscriptions.subscribers([PLACED]) == [_address(session, "New")]


def test_unsubscribed_is_who_was_subscribed(subscriptions: Subscriptions) -> None:
    subscriptions.subscribe("Shipping", "Shipping", PLACED)

    assert not subscriptions.unsubscribe("Shipping", BILLED)
    assert subscriptions.unsubscribe("Shipping", PLACED)
    assert not subscriptions.unsubscribe("Shipping", PLACED)
    assert subscriptions.subscribers([PLACED]) == []


def test_table_can_be_created_by_many_at_once_and_have_any_name(subject: Subject) -> None:
    barrier = threading.Barrier(3)
    table = address(
        subject,
        'it\'s [the] "routes" 50%' if not subject.server.abilities.stand_in else "it's routes",
    )

    def create(_: int) -> None:
        with transport_of(subject).connect() as session:
            barrier.wait(60)
            session.subscriptions(table).create()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(create, range(3)))

    with transport_of(subject).connect() as session:
        session.subscriptions(table).subscribe("Shipping", "Shipping", PLACED)
        assert len(session.subscriptions(table).subscribers([PLACED])) == 1
        subject.execute(f"DROP TABLE {subject.server.quoted(session.queue(table).destination)}")


def test_many_subscribe_at_once_and_one_is_subscribed(
    skipping: Subject, subscriptions: Subscriptions
) -> None:
    barrier, transport = threading.Barrier(4), transport_of(skipping)

    def subscribe(number: int) -> None:
        with transport.connect() as session:
            barrier.wait(60)
            session.subscriptions().subscribe("Shipping", f"Shipping{number}", PLACED)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(subscribe, range(4)))

    assert len(subscriptions.subscribers([PLACED])) == 1


@pytest.mark.parametrize("topic", ["", " ", "t" * 201])
def test_topic_that_no_column_holds_is_refused(subscriptions: Subscriptions, topic: str) -> None:
    with pytest.raises(ConfigError, match="1 to 200 characters"):
        subscriptions.subscribe("Shipping", "Shipping", topic)
    with pytest.raises(ConfigError, match="1 to 200 characters"):
        subscriptions.subscribers([topic])


def test_table_that_is_not_there_says_how_to_create_it(session: TransportSession) -> None:
    with pytest.raises(ConfigError, match="subscriptions create"):
        session.subscriptions("Nowhere").subscribers([PLACED])
