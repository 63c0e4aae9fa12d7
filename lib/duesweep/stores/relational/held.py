"""What operators hold back, as it is kept beside the store: pauses of destinations, and limits."""

from collections.abc import Sequence

from duesweep.core.pauses import Pause
from duesweep.core.policy import RateLimit
from duesweep.drivers.statements import Session, retry_lost_transactions
from duesweep.stores.relational.pauses import pause_of


class HeldBack:
    """Of one source, on a session's statements. See `PausesDestinations` and `LimitsRates`."""

    def __init__(self, statements: Session, source: str) -> None:
        self._statements = statements
        self.source = source

    @retry_lost_transactions
    def pause(self, pattern: str, until: object, given_by: str, reason: str) -> None:
        """Pause destinations until a moment in the dialect's form."""
        values = {"until": until, "given_by": given_by, "reason": reason}
        with self._statements.transaction():
            self._statements.execute("drop_old_pauses", source=self.source)
            self._statements.execute("pause", source=self.source, pattern=pattern, **values)

    @retry_lost_transactions
    def resume(self, pattern: str) -> bool:
        """End a pause; False if there is none in force."""
        with self._statements.transaction():
            self._statements.execute("drop_old_pauses", source=self.source)
            return bool(self._statements.execute("resume", source=self.source, pattern=pattern))

    def pauses(self) -> Sequence[Pause]:
        """The pauses in force."""
        rows = self._statements.rows("read_pauses", source=self.source)
        return [pause_of(row) for row in rows]

    @retry_lost_transactions
    def reserve(self, limit: RateLimit, messages: int) -> float:
        """Reserve so many messages of a limit; after how many seconds they may go."""
        seconds = messages * limit.seconds_each
        with self._statements.transaction():
            row = self._statements.row(
                "reserve", source=self.source, pattern=limit.pattern, seconds=seconds
            )
        return float(row.wait_seconds)
