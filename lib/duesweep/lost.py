"""Retries transactions that the server rolled back: deadlocks and serialization failures."""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from duesweep.errors import TransactionLostError

# After this many lost transactions in a row the error is raised.
MAX_LOST_TRANSACTIONS = 5
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


def wait_seconds(lost: int, rng: random.Random) -> float:
    """How long to wait after `lost` losses in a row. The wait is random, so that transactions that
    blocked each other do not start together again.
    """
    return rng.uniform(0, min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**lost))


def retry_lost_transactions(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make `work` run again when one of its transactions was lost. All that `work` does must be in
    its own transactions.
    """

    @wraps(work)
    def retrying(*arguments: _P.args, **options: _P.kwargs) -> _T:
        rng = random.Random()
        for lost in range(1, MAX_LOST_TRANSACTIONS + 1):
            try:
                return work(*arguments, **options)
            except TransactionLostError:
                time.sleep(wait_seconds(lost, rng))
        return work(*arguments, **options)

    return retrying
