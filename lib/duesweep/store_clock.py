"""What time it is on a store's own clock, between two questions to its server."""

from duesweep.clock import Clock


class StoreClock:
    """The store's clock: the server's as it was at a claim, plus what has passed on `clock` since.

    `server_us` is the server's time in microseconds since 1970-01-01 UTC; `shift_us` is what stored
    Dues are ahead of it, where their writers' time zone is not UTC.
    """

    def __init__(self, server_us: int, shift_us: int, clock: Clock) -> None:
        self._server_us = server_us
        self._shift_us = shift_us
        self._clock = clock
        self._read_at = clock.seconds()

    def server_us(self) -> int:
        """The server's time now, in microseconds."""
        return self._server_us + int((self._clock.seconds() - self._read_at) * 1_000_000)

    def seconds_until(self, due_us: int | None, instant_us: int | None = None) -> int:
        """Whole seconds, rounded up, until a stored Due; 0 where it has passed (None: long ago).
        `instant_us` is the instant that it means, where that is known.
        """
        return -(-self.microseconds_until(due_us, instant_us) // 1_000_000)

    def microseconds_until(self, due_us: int | None, instant_us: int | None = None) -> int:
        """The same in microseconds."""
        if due_us is None:
            return 0
        means_us = due_us - self._shift_us if instant_us is None else instant_us
        return max(0, means_us - self.server_us())
