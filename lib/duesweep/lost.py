"""What the server undid to end a deadlock, or since it could not be serialized: tried again."""

import random
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from duesweep.errors import TransactionLostError

# What was lost this often in a row is given up.
MAX_LOST_TRANSACTIONS = 5
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


def wait_seconds(lost: int, rng: random.Random) -> float:
    """How long to wait after so many losses in a row: at random, so that those who met do not meet
    again.
    """
    return rng.uniform(0, min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**lost))


def tried_again(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """`work`, all of it in transactions of its own, done again where one of them was lost."""

    @wraps(work)
    def persistent(*arguments: _P.args, **options: _P.kwargs) -> _T:
        rng = random.Random()
        for lost in range(1, MAX_LOST_TRANSACTIONS + 1):
            try:
                return work(*arguments, **options)
            except TransactionLostError:
                time.sleep(wait_seconds(lost, rng))
        return work(*arguments, **options)

    return persistent
