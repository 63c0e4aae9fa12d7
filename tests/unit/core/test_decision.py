"""What is decided of a batch's faulty messages, step by step."""

import json
import random

import pytest

from duesweep.core.fault_headers import FAILED_QUEUE, TIME_OF_FAILURE
from duesweep.core.outcome import Delivered, Exhausted, Fault, Outcomes
from duesweep.core.policy import Retry
from duesweep.errors import QueueNotFoundError, RefusedMessageError
from duesweep.sweep.batch import (
    Decision,
    SentErrors,
    conclude,
    count_exhausted,
    decide,
    write_error_messages,
)
from duesweep_testing.builders import DUE, delayed_row, message

RETRY = Retry(max_attempts=3, initial_seconds=100, non_retryable=(RefusedMessageError,))
NOT_FOUND = QueueNotFoundError("There is no queue Nowhere")


def faulty(attempts: int = 0, error: QueueNotFoundError | RefusedMessageError = NOT_FOUND) -> Fault:
    return message(delayed_row("Nowhere"), attempts), error


def concluded(decision: Decision, sent: SentErrors | None = None) -> Outcomes:
    return conclude((), decision, sent, RETRY, rng=random.Random(1))


def test_messages_at_their_last_attempt_and_non_retryable_ones_are_out_of_attempts() -> None:
    faults = [faulty(0), faulty(1), faulty(2), faulty(7), faulty(0, RefusedMessageError("no"))]

    assert count_exhausted(faults, RETRY) == 3
    assert decide(faults, RETRY, 3) == Decision(faults, faults[2:], 0)


@pytest.mark.parametrize(("granted", "over_limit"), [(3, 0), (1, 2), (0, 3)])
def test_first_of_them_are_exhausted_and_the_others_are_over_the_limit(
    granted: int, over_limit: int
) -> None:
    faults = [faulty(2), faulty(0), faulty(2), faulty(2)]
    last = [faults[0], faults[2], faults[3]]

    assert decide(faults, RETRY, granted) == Decision(faults, last[:granted], over_limit)


def test_batch_without_faults_decides_nothing() -> None:
    sent = [Delivered(message(), "Billing")]

    assert count_exhausted([], RETRY) == 0
    decision = decide([], RETRY, 0)
    assert decision == Decision([], [], 0)
    assert conclude(sent, decision, None, RETRY, rng=random.Random()) == Outcomes(tuple(sent))


def test_error_messages_are_the_exhausted_ones_with_their_fault() -> None:
    failing, exhausted = faulty(0), faulty(2)

    (written,) = write_error_messages(decide([failing, exhausted], RETRY, 1), "Sales.Orders", DUE)

    assert written.key == exhausted[0].key
    headers = json.loads(written.headers_text)
    assert headers[FAILED_QUEUE] == "Nowhere"
    assert headers[TIME_OF_FAILURE] == "2026-11-21 09:21:19:000000 Z"


def test_without_an_error_queue_all_that_is_exhausted_leaves() -> None:
    faults = [faulty(0), faulty(2), faulty(2)]

    outcomes = concluded(decide(faults, RETRY, 1))

    assert outcomes.exhausted == (Exhausted(*faults[1], None),)
    assert [(f.message, f.error) for f in outcomes.failed] == [faults[0], faults[2]]
    assert outcomes.over_limit == 1
    assert outcomes.claimed == 3


def test_exhausted_message_whose_error_message_did_not_arrive_stays_as_a_failure() -> None:
    faults = [faulty(2), faulty(0), faulty(2)]

    outcomes = concluded(decide(faults, RETRY, 2), SentErrors("error", {faults[2][0].key}))

    assert outcomes.exhausted == (Exhausted(*faults[2], "error"),)
    assert [(f.message, f.error) for f in outcomes.failed] == faults[:2]
    assert outcomes.over_limit == 0


def test_error_queue_that_takes_nothing_keeps_every_message_in_the_store() -> None:
    faults = [faulty(2), faulty(2)]

    outcomes = concluded(decide(faults, RETRY, 2), SentErrors())

    assert outcomes.exhausted == ()
    assert [f.message for f in outcomes.failed] == [m for m, _ in faults]


def test_failures_back_off_by_their_attempts() -> None:
    outcomes = concluded(decide([faulty(0), faulty(1)], RETRY, 0))

    first, second = (failed.retry_seconds for failed in outcomes.failed)
    assert 75 <= first <= 100
    assert 150 <= second <= 200
