"""Triggers and policies on queue tables: no message is lost, doubled or charged wrongly."""

import pytest

from duesweep.errors import DestinationError, RefusedMessageError
from support.contract import queue_steps
from support.endpoint import Endpoint

_DROP_BAD = """
    CREATE FUNCTION filter() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF new.body = 'bad' THEN RETURN NULL; END IF; RETURN new; END $$;
    CREATE TRIGGER filter BEFORE INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION filter();
"""
_CALLS = """
    CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN {body}; RETURN new; END $$;
    CREATE TRIGGER follow AFTER INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION follow();
"""


def test_row_that_a_trigger_drops_without_an_error_is_refused(endpoint: Endpoint) -> None:
    endpoint.execute(_DROP_BAD)
    messages = queue_steps.with_bodies(b"1", b"bad", b"2")

    refused = queue_steps.deliver(endpoint, *messages)

    assert list(refused) == [messages[1].key]
    assert isinstance(refused[messages[1].key], RefusedMessageError)
    assert queue_steps.lying_in(endpoint) == queue_steps.expected(messages[0], messages[2])


@pytest.mark.parametrize(
    "body", ["INSERT INTO audit VALUES (1)", "PERFORM no_such_function()", "new.nothing := 1"]
)
def test_trigger_that_is_broken_stops_the_queue_and_charges_no_message(
    body: str, endpoint: Endpoint
) -> None:
    endpoint.execute(_CALLS.format(body=body))

    with (
        queue_steps.batch(endpoint) as (_, queue),
        pytest.raises(DestinationError, match="trigger"),
    ):
        queue.deliver(queue.resolve("Billing"), queue_steps.with_bodies(b"1", b"2"))

    assert queue_steps.lying_in(endpoint) == []


def test_row_security_stops_the_queue_and_the_others_go_on(endpoint: Endpoint) -> None:
    endpoint.create_queue("Shipping")
    sweeper = endpoint.server.role(
        "sweeper", "ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public"
    )
    endpoint.execute('ALTER TABLE "Billing" ENABLE ROW LEVEL SECURITY')
    messages = queue_steps.with_bodies(b"1")

    with queue_steps.batch(endpoint, dsn=sweeper) as (_, queue):
        with pytest.raises(DestinationError):
            queue.deliver(queue.resolve("Billing"), messages)
        assert queue.deliver(queue.resolve("Shipping"), messages) == {}
