"""Options of a receiver: how it peeks, and how many messages it handles at once."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from duesweep.core.errors import ConfigError

SHORTEST_DELAY = timedelta(milliseconds=100)
LONGEST_DELAY = timedelta(seconds=10)
# As in the transports: enough messages for all threads.
_PEEKED_PER_THREAD = 10
_LEAST_PEEKED = 100


def _default_concurrency() -> int:
    return max(2, os.cpu_count() or 0)


@dataclass(frozen=True, slots=True)
class ReceiverOptions:
    """The transports' `QueuePeekerOptions` and concurrency limit, with their defaults.

    `peek_batch_size` None: ten for each thread, at least 100. `purge_on_startup`: remove all
    messages that are not locked, before any is received. Raises `ConfigError` for values that
    the transports refuse: a delay, a batch size or a concurrency of 0 or less.
    """

    peek_delay: timedelta = timedelta(seconds=1)
    peek_batch_size: int | None = None
    concurrency: int = field(default_factory=_default_concurrency)
    purge_on_startup: bool = False

    def __post_init__(self) -> None:
        if self.peek_delay <= timedelta():
            raise ConfigError(
                f"A peek delay of {_seconds(self.peek_delay)} is too short",
                advice="give 100 ms to 10 s",
            )
        if self.peek_batch_size is not None and self.peek_batch_size < 1:
            raise ConfigError(
                f"A peek batch size of {self.peek_batch_size} finds nothing",
                advice="give 1 or more",
            )
        if self.concurrency < 1:
            raise ConfigError(
                f"A concurrency limit of {self.concurrency} handles nothing",
                advice="give 1 or more",
            )

    @property
    def peek_batch(self) -> int:
        """How many messages one peek may find."""
        if self.peek_batch_size is not None:
            return self.peek_batch_size
        return max(_LEAST_PEEKED, _PEEKED_PER_THREAD * self.concurrency)

    def cautions(self) -> Sequence[str]:
        """Warnings about options that are not recommended."""
        if self.peek_delay < SHORTEST_DELAY:
            why = "it loads the database, and messages arrive hardly sooner"
        elif self.peek_delay > LONGEST_DELAY:
            why = "messages may back up in the queue"
        else:
            return []
        return [
            f"A peek delay of {_seconds(self.peek_delay)} is not recommended: {why}; 100 ms to "
            "10 s are recommended"
        ]

    def caution_about(self, time_to_be_received: timedelta | None) -> str | None:
        """A warning if messages with this time to be received may expire unseen; else None."""
        if time_to_be_received is None or self.peek_delay <= time_to_be_received:
            return None
        return (
            f"The peek delay of {_seconds(self.peek_delay)} is longer than the time to be received "
            f"of {_seconds(time_to_be_received)} that messages here have: they may expire before "
            "they are received; make the delay shorter"
        )


def _seconds(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
