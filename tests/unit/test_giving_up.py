"""Which of a batch's faulty messages are exhausted, and which fail."""

import json
import random
from collections.abc import Sequence

import pytest

from duesweep.core.errors import QueueNotFoundError, RefusedMessageError
from duesweep.core.message import (
    FAILED_QUEUE,
    TIME_OF_FAILURE,
    BatchResult,
    Delivered,
    Exhausted,
    Fault,
)
from duesweep.core.policy import Retry
from duesweep.sweep.batch import error_messages, give_up, out_of_attempts
from duesweep_testing.builders import DUE, delayed_row, message

RETRY = Retry(max_attempts=3, initial_seconds=100, non_retryable=(RefusedMessageError,))
NOT_FOUND = QueueNotFoundError("There is no queue Nowhere")


def faulty(attempts: int = 0, error: QueueNotFoundError | RefusedMessageError = NOT_FOUND) -> Fault:
    return message(delayed_row("Nowhere"), attempts), error


def given_up(
    faults: Sequence[Fault], exhausted: Sequence[Fault] = (), queue: str | None = None
) -> BatchResult:
    result = BatchResult(faulty=list(faults))
    give_up(result, exhausted, queue, RETRY, rng=random.Random(1))
    return result


def test_messages_at_their_last_attempt_and_non_retryable_ones_are_out_of_attempts() -> None:
    faults = [faulty(0), faulty(1), faulty(2), faulty(7), faulty(0, RefusedMessageError("no"))]

    assert out_of_attempts(faults, RETRY) == faults[2:]
    assert out_of_attempts([], RETRY) == []


def test_error_message_is_the_exhausted_one_with_its_fault() -> None:
    exhausted = faulty(2)

    (written,) = error_messages([exhausted], "Sales.Orders", DUE)

    assert written.key == exhausted[0].key
    headers = json.loads(written.headers_text)
    assert headers[FAILED_QUEUE] == "Nowhere"
    assert headers[TIME_OF_FAILURE] == "2026-11-21 09:21:19:000000 Z"


@pytest.mark.parametrize("queue", [None, "error"])
def test_exhausted_messages_leave_and_all_others_fail(queue: str | None) -> None:
    faults = [faulty(0), faulty(2), faulty(2)]

    result = given_up(faults, faults[1:2], queue)

    assert result.exhausted == [Exhausted(*faults[1], queue)]
    assert [(f.message, f.error) for f in result.failed] == [faults[0], faults[2]]
    assert result.claimed == 3


def test_batch_without_faults_is_what_was_delivered() -> None:
    sent = [Delivered(message(), "Billing")]
    result = BatchResult(sent)

    give_up(result, [], None, RETRY, rng=random.Random())

    assert result == BatchResult(sent)
    assert result.claimed == 1


def test_failures_back_off_by_their_attempts() -> None:
    first, second = (failed.retry_seconds for failed in given_up([faulty(0), faulty(1)]).failed)

    assert 75 <= first <= 100
    assert 150 <= second <= 200
