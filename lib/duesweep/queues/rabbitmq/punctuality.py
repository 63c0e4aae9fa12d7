"""When messages that are not due yet enter the delay ladder, which knows whole seconds only."""

from typing import NamedTuple

_SECOND_US = 1_000_000
# Each is held for a second, which would be too long for all of a large sweep's.
_HELD_BATCHES = 10


class LadderEntry(NamedTuple):
    """A message is held for `hold_seconds` before it enters, to wait there for `seconds`."""

    seconds: int
    hold_seconds: float = 0.0


class Punctuality:
    """Holds a session's first batches back until what is left of each message's delay is whole
    seconds; later ones are rounded up, and arrive up to a second after their Due. Not `is_wanted`:
    all of them.
    """

    def __init__(self, *, is_wanted: bool) -> None:
        self._batches_left = _HELD_BATCHES if is_wanted else 0

    def entry(self, left_us: int) -> LadderEntry:
        """How a message enters that is due in so many microseconds; never early."""
        if not self._batches_left:
            return LadderEntry(-(-left_us // _SECOND_US))
        seconds, rest_us = divmod(left_us, _SECOND_US)
        return LadderEntry(seconds, rest_us / _SECOND_US)

    def end_batch(self) -> None:
        """Count a batch that was held."""
        self._batches_left = max(0, self._batches_left - 1)
