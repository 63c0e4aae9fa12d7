"""When messages that are not due yet enter the delay ladder, which counts in whole seconds."""

from typing import NamedTuple

_SECOND_US = 1_000_000
# Each takes up to a second longer. That would be too long for all batches of a large sweep.
_HELD_BATCHES = 10


class LadderEntry(NamedTuple):
    """A message enters the ladder after `hold_seconds`, and waits there for `seconds`."""

    seconds: int
    hold_seconds: float = 0.0


class Punctuality:
    """In a session's first batches a message enters when its remaining delay is whole seconds. In
    later batches delays are rounded up: messages arrive up to a second after their Due. Not
    `is_wanted`: delays are rounded up in all batches.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._batches_left = _HELD_BATCHES if is_wanted else 0

    def entry(self, left_us: int) -> LadderEntry:
        """How a message enters that is due in `left_us` microseconds. It never arrives early."""
        if not self._batches_left:
            return LadderEntry(-(-left_us // _SECOND_US))
        seconds, rest_us = divmod(left_us, _SECOND_US)
        return LadderEntry(seconds, rest_us / _SECOND_US)

    def end_batch(self) -> None:
        """Count a batch whose messages were deferred."""
        self._batches_left = max(0, self._batches_left - 1)
