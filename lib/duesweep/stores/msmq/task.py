"""One task's session on the MSMQ transport's delayed message store."""

from collections.abc import Sequence
from typing import Any

from duesweep.errors import MessageError
from duesweep.message import Message
from duesweep.outcome import Failed
from duesweep.stores.sqlserver.account import listed
from duesweep.stores.sqlserver.indexed import IndexedTaskSession
from duesweep.stores.sqlserver.msmq import msmq_message, text_of_bytes
from duesweep.stores.sqlserver.statements import due_of
from duesweep.tombstone import micros


class MsmqTaskSession(IndexedTaskSession):
    """The row's own RetryCount counts its failures, and its Id is indexed."""

    def _message(self, row: Any, counter: Any) -> Message:  # noqa: ARG002 - the row's own counts
        return msmq_message(str(row.message_key), micros(due_of(row.due)), row, row.attempts)

    def _stored(self, message: Message) -> tuple[str | None, str]:
        is_read = not isinstance(message.headers, MessageError)
        stored = text_of_bytes(self._claimed[message.key].headers)
        return (message.headers_text if is_read else None), stored

    def _raise_attempts(self, failed: Sequence[Failed]) -> None:
        super()._raise_attempts(failed)
        self._statements.execute("raise_retry_counts", **listed(f.message.key for f in failed))
