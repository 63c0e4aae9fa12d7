"""One task's session on the MSMQ transport's delayed message store."""

from collections.abc import Sequence
from typing import Any

from duesweep.errors import MessageError, UnreadableHeadersError, storable
from duesweep.headers import json as headers_json
from duesweep.headers import xml as headers_xml
from duesweep.message import Message
from duesweep.outcome import Failed
from duesweep.stores.sqlserver.account import listed
from duesweep.stores.sqlserver.indexed import IndexedTaskSession
from duesweep.stores.sqlserver.statements import due_of
from duesweep.tombstone import micros


class MsmqTaskSession(IndexedTaskSession):
    """The row's own RetryCount counts its failures, and its Id is indexed."""

    def _message(self, row: Any, counter: Any) -> Message:  # noqa: ARG002 - the row's own counts
        key, due_us = str(row.message_key), micros(due_of(row.due))
        # Where the column is NULL: an address that names no queue, not the endpoint's own one.
        destination = row.destination or ""
        try:
            headers, _ = headers_xml.split(headers_xml.read(row.headers))
        except UnreadableHeadersError as error:
            text = _text(row.headers)
            return Message(key, due_us, error, text, row.body, destination, row.attempts)
        text = headers_json.write(headers)
        return Message(key, due_us, headers, text, row.body, destination, row.attempts)

    def _stored(self, message: Message) -> tuple[str | None, str]:
        is_read = not isinstance(message.headers, MessageError)
        stored = _text(self._claimed[message.key].headers)
        return (message.headers_text if is_read else None), stored

    def _raise_attempts(self, failed: Sequence[Failed]) -> None:
        super()._raise_attempts(failed)
        self._statements.execute("raise_retry_counts", **listed(f.message.key for f in failed))


def _text(stored: bytes | None) -> str:
    """Stored headers for people, whatever bytes they are."""
    return storable((stored or b"").decode("utf-8", "backslashreplace"))
