"""The meaning of a broker's answers for messages: every result with every fault."""

import pytest

from duesweep.core.errors import QueueError, QueueNotFoundError, RefusedMessageError
from duesweep.drivers.rabbitmq.errors import ChannelClosedError, UnansweredError
from duesweep.drivers.rabbitmq.publisher import Publication, PublishResult
from duesweep.queues.rabbitmq.answers import Answer, Sent, answer_of, returned_by, silent_endpoints
from duesweep.queues.rabbitmq.topology import DELAY_HEADER

GONE = ChannelClosedError(404, "NOT_FOUND - no exchange 'Billing' in vhost 'v'")
FORBIDDEN = ChannelClosedError(
    403, "ACCESS_REFUSED - access to exchange 'Billing' in vhost 'v' refused for user 'u'"
)
TOO_LONG = ChannelClosedError(
    406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 8"
)
ODD = ChannelClosedError(406, "PRECONDITION_FAILED - something else")
LOST = QueueError("The connection was lost", transient=True)
SILENT = UnansweredError("not confirmed in time", transient=True)
FAULTS = [None, GONE, FORBIDDEN, TOO_LONG, ODD, LOST, SILENT]


def sent(
    key: str = "k", exchange: str = "Billing", *, body: bytes = b"123456789", delayed: bool = False
) -> Sent:
    headers = {DELAY_HEADER: 5} if delayed else {}
    return Sent(key, "Billing", Publication(exchange, "", headers, {}, body))


def one(result: PublishResult, fault: QueueError | None, what: Sent | None = None) -> Answer:
    return answer_of([what or sent()], [result], fault)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_confirmed_message_has_arrived_whatever_ended_the_channel(fault: QueueError | None) -> None:
    confirmation = one(PublishResult.CONFIRMED, fault).confirmation

    assert (confirmation.refused, confirmation.unconfirmed) == ({}, frozenset())


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize(
    ("result", "error", "words"),
    [
        (PublishResult.REFUSED, RefusedMessageError, "Billing"),
        (PublishResult.UNSENDABLE, RefusedMessageError, "255 bytes"),
        (PublishResult.RETURNED, QueueNotFoundError, "Billing"),
    ],
)
def test_refusal_is_the_messages_own_whatever_ended_the_channel(
    result: PublishResult, error: type[Exception], words: str, fault: QueueError | None
) -> None:
    confirmation = one(result, fault).confirmation

    assert isinstance(confirmation.refused["k"], error)
    assert words in str(confirmation.refused["k"])
    assert confirmation.unconfirmed == frozenset()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_message_that_was_not_sent_is_released_whatever_ended_the_channel(
    fault: QueueError | None,
) -> None:
    confirmation = one(PublishResult.UNSENT, fault).confirmation

    assert (confirmation.refused, confirmation.unconfirmed) == ({}, {"k"})


@pytest.mark.parametrize("fault", [None, FORBIDDEN, ODD, LOST, SILENT], ids=str)
def test_message_of_unknown_result_is_released_where_the_fault_is_not_its_own(
    fault: QueueError | None,
) -> None:
    assert one(PublishResult.UNKNOWN, fault).confirmation.unconfirmed == {"k"}


def test_too_long_message_is_known_by_its_length() -> None:
    both = [sent("a"), sent("b", body=b"12345678")]

    answer = answer_of(both, [PublishResult.UNKNOWN, PublishResult.UNKNOWN], TOO_LONG)

    assert set(answer.confirmation.refused) == {"a"}
    assert answer.confirmation.unconfirmed == {"b"}
    assert answer.missing == frozenset()


@pytest.mark.parametrize(
    ("exchange", "named"), [("Billing", "Billing"), ("", "amq.default"), ("O'Brien", "O'Brien")]
)
def test_exchange_without_write_permission_is_closed(exchange: str, named: str) -> None:
    fault = ChannelClosedError(
        403, f"ACCESS_REFUSED - access to exchange '{named}' in vhost 'v' refused for user 'u'"
    )

    answer = one(PublishResult.UNKNOWN, fault, sent(exchange=exchange))

    assert list(answer.closed) == [exchange]
    assert str(fault) in answer.closed[exchange]


def test_returned_early_message_closes_its_level_and_is_charged_nothing() -> None:
    level = sent(exchange="nsb.v2.delay-level-02", delayed=True)

    answer = one(PublishResult.RETURNED, None, level)

    assert answer.confirmation.refused == {}
    assert answer.confirmation.unconfirmed == {"k"}
    assert list(answer.closed) == ["nsb.v2.delay-level-02"]
    assert "delays verify" in answer.closed["nsb.v2.delay-level-02"]


def test_level_that_is_missing_is_closed_and_charges_no_message() -> None:
    fault = ChannelClosedError(404, "NOT_FOUND - no exchange 'nsb.v2.delay-level-02' in vhost 'v'")
    both = [sent("a", "nsb.v2.delay-level-02", delayed=True), sent("b")]

    answer = answer_of(both, [PublishResult.UNKNOWN, PublishResult.UNKNOWN], fault)

    assert answer.confirmation.refused == {}
    assert answer.confirmation.unconfirmed == {"a", "b"}
    assert list(answer.closed) == ["nsb.v2.delay-level-02"]


@pytest.mark.parametrize(
    ("results", "is_fruitful"),
    [
        ([], True),
        ([PublishResult.CONFIRMED, PublishResult.UNKNOWN], True),
        ([PublishResult.REFUSED, PublishResult.UNSENT], True),
        ([PublishResult.RETURNED, PublishResult.UNKNOWN], True),
        ([PublishResult.UNKNOWN, PublishResult.UNSENT], False),
        ([PublishResult.UNKNOWN], False),
    ],
)
def test_batch_is_fruitful_when_anything_was_answered(
    results: list[PublishResult], *, is_fruitful: bool
) -> None:
    messages = [sent(str(number)) for number in range(len(results))]

    assert answer_of(messages, results, LOST).is_fruitful is is_fruitful


def test_messages_for_a_queue_that_is_down_have_no_fault() -> None:
    answer = answer_of([sent()], [PublishResult.RETURNED], None, down={"Billing"})

    assert answer.confirmation.refused == {}
    assert answer.confirmation.unconfirmed == {"k"}
    assert answer.missing == frozenset()


def test_endpoints_whose_messages_came_back_are_asked_for_but_not_ladder_levels() -> None:
    both = [sent("a"), sent("b", delayed=True)]
    back = [PublishResult.RETURNED] * 2

    assert returned_by(both, back) == {"Billing"}
    assert returned_by(both[1:], back[1:]) == set()
    assert returned_by([sent()], [PublishResult.REFUSED]) == set()


_SHIPPED, _OPEN = PublishResult.CONFIRMED, PublishResult.UNKNOWN


@pytest.mark.parametrize(
    ("results", "fault", "silent"),
    [
        ([_OPEN, _OPEN, _SHIPPED], SILENT, {"Billing"}),
        ([_OPEN, _OPEN, PublishResult.RETURNED], SILENT, {"Billing"}),
        # Billing takes some, and is only slow.
        ([_SHIPPED, _OPEN, _SHIPPED], SILENT, set()),
        # The broker answered no message.
        ([_OPEN, _OPEN, _OPEN], SILENT, set()),
        ([_OPEN, _OPEN, _SHIPPED], LOST, set()),
        ([_SHIPPED, _SHIPPED, _SHIPPED], None, set()),
    ],
)
def test_endpoint_that_alone_does_not_answer_is_not_the_brokers_silence(
    results: list[PublishResult], fault: QueueError | None, silent: set[str]
) -> None:
    shipped = Sent("c", "Shipping", Publication("Shipping", "", {}, {}, b""))

    known = set[str]()
    assert silent_endpoints([sent("a"), sent("b"), shipped], results, fault, known) == silent
    assert known == silent


def test_endpoint_that_was_silent_alone_is_known_until_it_answers() -> None:
    tried, known = [sent("a")], {"Billing", "Other"}

    assert silent_endpoints(tried, [_OPEN], SILENT, known) == {"Billing"}
    assert silent_endpoints(tried, [_OPEN], LOST, known) == set()
    assert silent_endpoints(tried, [_SHIPPED], None, known) == set()
    assert known == {"Other"}
    assert silent_endpoints(tried, [_OPEN], SILENT, known) == set()


@pytest.mark.parametrize(
    ("text", "is_missing"),
    [
        ("NOT_FOUND - no queue 'Billing' in vhost 'v'", True),
        (
            "NOT_FOUND - home node 'rabbit@b' of durable queue 'Billing' in vhost 'v' is down or "
            "inaccessible",
            False,
        ),
    ],
)
def test_queue_of_a_node_that_is_down_is_not_missing(text: str, *, is_missing: bool) -> None:
    assert ChannelClosedError(404, text).is_missing is is_missing
    assert not ChannelClosedError(406, text).is_missing
