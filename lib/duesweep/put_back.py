"""Stores messages again that an operator put back, and journals them. A row that the table refuses
does not keep back the others.
"""

from collections.abc import Sequence
from typing import NamedTuple

from duesweep.core.change import Change
from duesweep.core.errors import MessageError
from duesweep.drivers.statements import retry_lost_transactions
from duesweep.stores.base import NewMessage, OperatorTask, SweepRun


class Refused(NamedTuple):
    """A message that was not stored, and why."""

    change: Change
    reason: str


def put_back(
    session: OperatorTask, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]]
) -> list[Refused]:
    """Store messages again; returns those that the table refused.

    All go in one transaction. If a row is refused, so do their halves, each in its own: SQL Server
    ends the whole transaction for some errors of a row.
    """
    if not messages:
        return []
    try:
        _put_back_all(session, run, messages)
    except MessageError as error:
        if len(messages) == 1:
            ((change, _),) = messages
            return [Refused(change, str(error))]
        half = len(messages) // 2
        return put_back(session, run, messages[:half]) + put_back(session, run, messages[half:])
    return []


@retry_lost_transactions
def _put_back_all(
    session: OperatorTask, run: SweepRun, messages: Sequence[tuple[Change, NewMessage]]
) -> None:
    with session.transaction():
        session.put_back(run, messages, session.hold(run, ()).server_us)
