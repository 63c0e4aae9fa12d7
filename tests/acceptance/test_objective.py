"""`slo.lateness_seconds`: exit code 5 where a sweep was late, and nothing worse happened."""

import pytest

from support.endpoint import Endpoint

SAID = "the objective slo.lateness_seconds"


@pytest.fixture
def late(endpoint: Endpoint) -> Endpoint:
    """A message for Billing is a minute late."""
    endpoint.set_up("Billing").delay("Billing", due_in_seconds=-60)
    return endpoint.having(slo__lateness_seconds=50)


def test_message_that_is_later_than_the_objective(late: Endpoint) -> None:
    ran = late.run("sweep", "--json")

    assert (ran.code, SAID in ran.err) == (5, True)
    told = ran.document
    assert (told["outcome"], told["exit_code"], told["error"]) == ("done", 5, None)


def test_message_that_is_less_late_than_the_objective(late: Endpoint) -> None:
    ran = late.run("sweep", slo__lateness_seconds=3_600)

    assert (ran.code, SAID in ran.err) == (0, False)


def test_message_that_is_late_because_it_failed_before(late: Endpoint) -> None:
    billing = late.table("Billing")
    late.execute(f"ALTER TABLE {billing} RENAME TO away")
    assert late.run("sweep").code == 3
    late.execute(f"ALTER TABLE away RENAME TO {billing.rpartition('.')[2]}")
    late.end_back_off()

    ran = late.run("sweep")

    assert (ran.code, SAID in ran.err) == (0, False)


def test_failure_is_told_before_lateness(late: Endpoint) -> None:
    late.delay("Nowhere")

    ran = late.run("sweep")

    assert (ran.code, SAID in ran.err) == (3, True)
