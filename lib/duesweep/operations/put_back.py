"""Messages of the ledger go back into the store: what `restore` and `errors replay` share.

Each is stored and journalled in one transaction, so the ledger says of each whether it went back. A
command that puts messages back reads that when it runs alone, and when the ledger has all that
earlier ones did (see `change`): so of two such commands, the second one leaves out the messages of
the first.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from duesweep.core.change import Change
from duesweep.core.errors import MessageError
from duesweep.core.policy import BatchLimits
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.operations.change import Failure, Tally
from duesweep.stores.base import NewMessage, OperatorTask, SweepRun


class Returning(NamedTuple):
    """A message that goes back into the store, and its change; or why it cannot."""

    change: Change
    new: NewMessage | str

    @property
    def size(self) -> int:
        return len(self.change.message.headers_text) + len(self.change.message.body or b"")

    def refused(self, reason: str) -> Failure:
        return Failure(self.change.message.key, self.change.of or "", reason)


def put_back(
    session: OperatorTask, run: SweepRun, limits: BatchLimits, messages: Iterable[Returning]
) -> Iterator[Tally]:
    """Store a stream of messages in batches, except ones that cannot be stored."""
    for batch in limits.pack(messages, lambda one: one.size):
        known = [(one, one.new) for one in batch if isinstance(one.new, NewMessage)]
        unknown = [one.refused(one.new) for one in batch if isinstance(one.new, str)]
        yield _put_back(session, run, known) + Tally.refusing(unknown)


def _put_back(
    session: OperatorTask, run: SweepRun, batch: Sequence[tuple[Returning, NewMessage]]
) -> Tally:
    """All go in one transaction. If a row is refused, so do their halves, each in its own: SQL
    Server ends the whole transaction for some errors of a row.
    """
    if not batch:
        return Tally()
    try:
        _put_back_all(session, run, [(one.change, new) for one, new in batch])
    except MessageError as error:
        if len(batch) == 1:
            return Tally.refusing([batch[0][0].refused(str(error))])
        half = len(batch) // 2
        return _put_back(session, run, batch[:half]) + _put_back(session, run, batch[half:])
    return Tally(changed=len(batch))


@retry_lost_transactions
def _put_back_all(
    session: OperatorTask, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]]
) -> None:
    with session.transaction():
        session.put_back(run, messages, session.hold(run, ()).server_us)
