"""A queue whose batches take a while, so that no sweep is done before it is stopped or killed."""

from support.endpoint import Endpoint

_SLOW = """
CREATE FUNCTION wait_a_while() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.2);
    RETURN NULL;
END $$;
CREATE TRIGGER slow BEFORE INSERT ON "Billing" FOR EACH STATEMENT EXECUTE FUNCTION wait_a_while();
"""


def slow_down(endpoint: Endpoint) -> None:
    """Each batch into Billing takes 0.2 s from now on."""
    endpoint.execute(_SLOW)


def speed_up(endpoint: Endpoint) -> None:
    """As before `slow_down`."""
    endpoint.execute('DROP TRIGGER slow ON "Billing"')
