"""A message as it is published: each property's rule, its delay, and refusals."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core.errors import RefusedMessageError
from duesweep.core.headers import FORWARD_DESTINATION, write_json
from duesweep.core.message import (
    ENCLOSED_MESSAGE_TYPES,
    MESSAGE_ID,
    TIME_TO_BE_RECEIVED,
    Message,
    make_error_message,
)
from duesweep.drivers.rabbitmq.publisher import Publication
from duesweep.queues.rabbitmq import topology
from duesweep.queues.rabbitmq.topology import Style
from duesweep.queues.rabbitmq.wire import (
    Punctuality,
    delayed_publication,
    direct_publication,
)
from duesweep_testing.builders import delayed_row, message
from support.recordings import cases

NON_PERSISTENT = "NServiceBus.Transport.RabbitMQ.UseNonPersistentDelivery"
MISSING = object()


def one(**headers: Any) -> Message:
    """A message of a store with these more headers, or without `MISSING` ones."""
    plain = message(delayed_row())
    assert not isinstance(plain.headers, Exception)
    merged = {n: v for n, v in {**plain.headers, **headers}.items() if v is not MISSING}
    return plain._replace(headers=merged, headers_text=write_json(merged))


def published(**headers: Any) -> Publication:
    return direct_publication(one(**headers), Style.CONVENTIONAL, "Billing")


@pytest.mark.parametrize(
    ("property_name", "header", "value", "wanted"),
    [
        ("content_type", "NServiceBus.ContentType", "text/xml", "text/xml"),
        ("content_type", "NServiceBus.ContentType", "", ""),
        ("content_type", "NServiceBus.ContentType", None, "application/octet-stream"),
        ("content_type", "NServiceBus.ContentType", MISSING, "application/octet-stream"),
        ("reply_to", "NServiceBus.ReplyToAddress", "Sales", "Sales"),
        ("reply_to", "NServiceBus.ReplyToAddress", "", ""),
        ("reply_to", "NServiceBus.ReplyToAddress", None, None),
        ("reply_to", "NServiceBus.ReplyToAddress", MISSING, None),
        ("correlation_id", "NServiceBus.CorrelationId", "c", "c"),
        ("correlation_id", "NServiceBus.CorrelationId", "", ""),
        ("correlation_id", "NServiceBus.CorrelationId", None, None),
        ("correlation_id", "NServiceBus.CorrelationId", MISSING, None),
        ("type", ENCLOSED_MESSAGE_TYPES, "A.B, C, Version=1;D, E", "A.B"),
        ("type", ENCLOSED_MESSAGE_TYPES, "A.B;D.E", "A.B;D.E"),
        ("type", ENCLOSED_MESSAGE_TYPES, "", ""),
        ("type", ENCLOSED_MESSAGE_TYPES, None, None),
        ("type", ENCLOSED_MESSAGE_TYPES, MISSING, None),
    ],
)
def test_property_follows_its_header(
    property_name: str, header: str, value: Any, wanted: str | None
) -> None:
    assert published(**{header: value}).properties.get(property_name) == wanted


@pytest.mark.parametrize("value", [None, MISSING, ""])
def test_message_without_an_id_gets_its_key_for_one(value: Any) -> None:
    plain = one(**{MESSAGE_ID: value})

    publication = direct_publication(plain, Style.CONVENTIONAL, "Billing")

    assert publication.properties["message_id"] == plain.key


def test_headers_travel_as_they_are_and_null_stays_null() -> None:
    publication = published(Nullable=None, Empty="", Grüße="\N{GRINNING FACE}")

    assert publication.headers["Nullable"] is None
    assert publication.headers["Empty"] == ""
    assert publication.headers["Grüße"] == "\N{GRINNING FACE}"


@pytest.mark.parametrize("value", ["True", "", None])
def test_message_that_asks_for_it_is_not_persistent(value: str | None) -> None:
    publication = published(**{NON_PERSISTENT: value})

    assert publication.properties["delivery_mode"] == 1
    assert NON_PERSISTENT not in publication.headers


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_header_for_which_the_broker_would_close_the_channel_is_refused_before(name: str) -> None:
    with pytest.raises(RefusedMessageError, match=f"header {name},"):
        published(**{name: "a@example.com"})


def test_non_durable_message_is_persistent_as_it_was_recorded() -> None:
    (case,) = [case for case in cases() if "NServiceBus.NonDurableMessage" in case.headers]

    publication = direct_publication(case.message(), Style.CONVENTIONAL, case.to)

    assert publication.properties["delivery_mode"] == 2
    assert "NServiceBus.NonDurableMessage" in publication.headers


@pytest.mark.parametrize(
    ("time_span", "expiration"),
    [
        ("00:10:00", "600000"),
        ("00:00:00.0019999", "1"),
        ("1.00:00:00", "86400000"),
        ("49.17:02:47.2950000", "4294967295"),
        ("49.17:02:47.2960000", None),
        ("10675199.02:48:05.4775807", None),
        ("tomorrow", None),
        ("", None),
        (None, None),
        (MISSING, None),
    ],
)
def test_time_to_be_received_is_the_expiration(time_span: Any, expiration: str | None) -> None:
    publication = published(**{TIME_TO_BE_RECEIVED: time_span})

    assert publication.properties.get("expiration") == expiration


def test_in_the_ladder_nothing_expires() -> None:
    plain = one(**{TIME_TO_BE_RECEIVED: "00:10:00"})

    publication = delayed_publication(plain, "Billing", 5)

    assert "expiration" not in publication.properties
    assert publication.headers[TIME_TO_BE_RECEIVED] == "00:10:00"


def test_letter_of_the_error_queue_does_not_expire() -> None:
    plain = one(**{TIME_TO_BE_RECEIVED: "00:10:00"})
    given_up = make_error_message(plain, RefusedMessageError("too long"), own_queue="Sales.Orders")

    publication = direct_publication(given_up, Style.CONVENTIONAL, "error")

    assert "expiration" not in publication.properties


@pytest.mark.parametrize(
    "stale",
    [
        FORWARD_DESTINATION,
        topology.DELAY_HEADER,
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
        "x-last-death-exchange",
        "x-last-death-queue",
        "x-last-death-reason",
    ],
)
def test_what_led_a_message_on_its_way_does_not_travel_on(stale: str) -> None:
    assert stale not in published(**{stale: "17"}).headers


def test_delay_is_said_anew_in_the_ladder() -> None:
    publication = delayed_publication(one(**{topology.DELAY_HEADER: "17"}), "Billing", 5)

    assert publication.headers[topology.DELAY_HEADER] == 5
    assert publication.exchange == "nsb.v2.delay-level-02"
    assert publication.routing_key.endswith("0.0.1.0.1.Billing")


@pytest.mark.parametrize(
    ("style", "entry"),
    [(Style.CONVENTIONAL, ("Billing", "")), (Style.DIRECT, ("", "Billing"))],
)
def test_endpoint_is_reached_by_its_topology(style: Style, entry: tuple[str, str]) -> None:
    publication = direct_publication(one(), style, "Billing")

    assert (publication.exchange, publication.routing_key) == entry


@pytest.mark.parametrize(("body", "wanted"), [(None, b""), (b"", b""), (b"\0x", b"\0x")])
def test_body_is_bytes_and_none_is_empty(body: bytes | None, wanted: bytes) -> None:
    plain = one()._replace(body=body)

    assert direct_publication(plain, Style.CONVENTIONAL, "Billing").body == wanted
    assert delayed_publication(plain, "Billing", 1).body == wanted


_left = st.integers(0, 2**28 * 1_000_000)


@given(_left)
def test_what_is_held_enters_when_whole_seconds_are_left(left_us: int) -> None:
    seconds, hold_seconds = Punctuality(is_wanted=True).seconds_and_hold(left_us)

    assert 0 <= hold_seconds < 1
    assert abs(seconds + hold_seconds - left_us / 1_000_000) < 0.000_001


@given(_left)
def test_what_is_not_held_is_rounded_up(left_us: int) -> None:
    seconds, hold_seconds = Punctuality(is_wanted=False).seconds_and_hold(left_us)

    assert hold_seconds == 0
    assert 0 <= seconds - left_us / 1_000_000 < 1


def test_only_the_first_batches_are_held() -> None:
    punctuality = Punctuality(is_wanted=True)
    held = 0
    while punctuality.seconds_and_hold(1_500_000) == (1, 0.5):
        punctuality.end_batch()
        held += 1
    punctuality.end_batch()

    assert held == 10
    assert punctuality.seconds_and_hold(1_500_000) == (2, 0.0)
