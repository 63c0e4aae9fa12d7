"""Transactions that are lost and tried again."""

import random
import time

import pytest

from duesweep.core.errors import StoreError, TransactionLostError
from duesweep.drivers.statements import MAX_LOST_TRANSACTIONS, retry_lost_transactions, wait_seconds


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits, noted and skipped."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def _losing(times: int, error: Exception) -> tuple[list[int], object]:
    tries: list[int] = []

    @retry_lost_transactions
    def work(number: int, *, word: str) -> str:
        tries.append(number)
        if len(tries) <= times:
            raise error
        return word

    return tries, work


@pytest.mark.parametrize("times", [0, 1, MAX_LOST_TRANSACTIONS])
def test_lost_transaction_is_tried_again_after_a_wait(times: int, waits: list[float]) -> None:
    tries, work = _losing(times, TransactionLostError("deadlock"))

    assert work(7, word="done") == "done"  # type: ignore[operator]
    assert tries == [7] * (times + 1)
    assert len(waits) == times


def test_transaction_that_is_lost_again_and_again_is_given_up(waits: list[float]) -> None:
    tries, work = _losing(100, TransactionLostError("deadlock"))

    with pytest.raises(TransactionLostError, match="deadlock"):
        work(7, word="done")  # type: ignore[operator]

    assert len(tries) == MAX_LOST_TRANSACTIONS + 1
    assert sum(waits) < 6


def test_other_faults_are_not_tried_again(waits: list[float]) -> None:
    tries, work = _losing(1, StoreError("gone", transient=True))

    with pytest.raises(StoreError, match="gone"):
        work(7, word="done")  # type: ignore[operator]

    assert (len(tries), waits) == (1, [])


def test_waits_are_at_random_and_grow_up_to_a_bound() -> None:
    rng = random.Random(1)

    drawn = {lost: [wait_seconds(lost, rng) for _ in range(200)] for lost in (1, 3, 50)}

    assert 0 <= min(drawn[1]) < 0.02
    assert 0.08 < max(drawn[1]) <= 0.1
    assert 0.3 < max(drawn[3]) <= 0.4
    assert 0.9 < max(drawn[50]) <= 1.0
