"""Pure rules: batches, back-off, giving up, slices."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duesweep.errors import MessageError

# A key and its size take some 100 bytes in a task, so this bounds a task's plan to about 50 MB.
MAX_SLICE_ROWS = 500_000
# Rule of the house: no batch holds its claim longer than about this.
CLAIM_SECONDS = 5.0
# Of one statement: SQL Server locks a whole table where one has taken 5,000 locks on it, its
# rows' pages counted.
SCANNED_ROWS = 2_000
MAX_BATCH_ROWS = 1_000
_LEAST_MARGIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a failed message is tried again."""

    max_attempts: int = 5
    initial_seconds: float = 30.0
    max_seconds: float = 3600.0
    non_retryable: tuple[type[MessageError], ...] = ()

    def is_last(self, failures_before: int, error: MessageError) -> bool:
        """Whether one more failure, `error`, exhausts a message that has failed `failures_before`
        times: the last one does, and a non-retryable one at once.
        """
        return failures_before + 1 >= self.max_attempts or isinstance(error, self.non_retryable)

    def backoff_seconds(self, failures_before: int, rng: random.Random) -> float:
        """Seconds until the next attempt: doubled with each failure, capped, and then shortened
        by up to a quarter at random, so that what failed together does not come back together.
        """
        # 2.0**64 exceeds any cap; a larger exponent would overflow for long-lived messages.
        full = min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures_before, 64))
        return full * (1.0 - 0.25 * rng.random())


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The bounds of one batch, in rows and in bytes of headers and body."""

    rows: int = 1000
    bytes: int = 8_000_000

    def batches(self, keys: Sequence[str], sizes: Sequence[int]) -> Iterator[Sequence[str]]:
        """`keys` cut into batches within the limits; a message over the limit goes alone."""
        start, weight = 0, 0
        for index, size in enumerate(sizes):
            full = index - start >= self.rows or weight + size > self.bytes
            if full and index > start:
                yield keys[start:index]
                start, weight = index, 0
            weight += size
        if start < len(keys):
            yield keys[start:]


@dataclass(frozen=True, slots=True)
class LookAhead:
    """How far a sweep looks ahead that runs every `period_seconds`; 0: not at all. `started` is
    when this one began to start, as `time.time()` tells it.

    What comes due before the next sweep has had time to start, and to carry what it finds, has to
    be deferred by this one. Starting is measured; carrying is taken to last as long again.
    """

    period_seconds: float = 0
    started: float = 0

    def seconds(self, now: float) -> float:
        """How far to look ahead at `now`, a sweep's first look at its store."""
        if not self.period_seconds:
            return 0
        # A start that takes most of the period is no measure: whoever keeps a session for many
        # sweeps began long ago.
        starting = min(max(0.0, now - self.started), self.period_seconds / 2)
        return self.period_seconds + max(_LEAST_MARGIN_SECONDS, 2 * starting)

    @property
    def longest_seconds(self) -> float:
        """How far it may be: where a start is still to come, and cannot be measured."""
        return self.seconds(self.started + self.period_seconds)


def delay_level(seconds: int) -> int:
    """At which of its levels a delay ladder takes a message in: that of the delay's highest bit."""
    return max(seconds.bit_length() - 1, 0)


def slice_count(found: int, cores: int, limits: BatchLimits) -> int:
    """How many slices a plan of `found` rows gets: one a core, fewer where there is less than a
    batch for each, more where a slice would not fit a task's memory.
    """
    useful = -(-found // limits.rows)
    return max(1, min(cores, useful), -(-found // MAX_SLICE_ROWS))
