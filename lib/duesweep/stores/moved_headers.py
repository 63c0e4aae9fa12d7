"""Messages that move from the delayed table into a queue table of the same database.

Their bodies stay in the server. Their headers are read here, because only the receivers' own rules
tell whether they can be read: whatever is unusual rolls the batch back, and the careful form runs
it. The server cuts the forward destination off; that is right if the rest is an object with
members, none of which is that header.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from duesweep.core.errors import UnreadableHeadersError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION, HeaderReader, Headers, read_json
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, Address, first_type
from duesweep.stores.dialect import Location
from duesweep.stores.forward import cut_off
from duesweep.stores.kinds import TableKind
from duesweep.stores.task import Table
from duesweep.stores.tombstone import Tombstones

# It learns the headers of this process's messages.
_reader = HeaderReader(MESSAGE_ID, ENCLOSED_MESSAGE_TYPES)


@dataclass(frozen=True, slots=True)
class HeaderCut:
    """The cut through the headers of messages for one destination. `forward` is how the
    store has the destination written, `destination` is its address, and `queue` the table. `tail`
    is cut off from the headers, which then get the `end`.
    """

    kind: TableKind
    forward: str
    destination: str
    queue: Any
    tail: str
    end: str

    @classmethod
    def of(cls, location: Location, forward: str, address: Address, table: Table) -> "HeaderCut":
        """The cut for this destination, whose address means the table."""
        destination = location.addresses.endpoint if address is None else address
        tail = "" if location.kind.has_destination else cut_off(forward)
        return cls(location.kind, forward, destination, table, tail, "}" if tail else "")

    def tombstones(
        self,
        keys: Sequence[str],
        texts: Sequence[str],
        instants_us: Sequence[int | None],
        body_bytes: Sequence[int],
    ) -> Tombstones:
        """The tombstones of messages at their first attempt, which `checked_move` corrects. `texts`
        are their headers, up to the cut text.

        Raises `UnusualBatchError` if one of them is unusual.
        """
        count, read = len(keys), self._read_all(texts)
        types = {each: first_type(each) for each in {enclosed for _, enclosed in read}}
        return Tombstones(
            keys=list(keys),
            message_ids=[message_id for message_id, _ in read],
            message_types=[types[enclosed] for _, enclosed in read],
            destinations=[self.destination] * count,
            queues=[str(self.queue)] * count,
            instants_us=list(instants_us),
            attempts=[0] * count,
            body_bytes=list(body_bytes),
            deferred=[False] * count,
        )

    def _read_all(self, texts: Sequence[str]) -> Sequence[tuple[str | None, ...]]:
        """The id and the enclosed types of each message."""
        found = _reader.read(texts, self.end)
        # A message without an id may have no headers at all.
        if found is not None and all(message_id is not None for message_id, _ in found):
            return found
        read = list(map(self._read_headers, texts))
        if not any(FORWARD_DESTINATION in headers for headers in read):
            _reader.learn(read)
        return [(each.get(MESSAGE_ID), each.get(ENCLOSED_MESSAGE_TYPES)) for each in read]

    def _read_headers(self, text: str) -> Headers:
        """The headers as they are delivered, of the text before the forward destination."""
        try:
            headers = read_json(text + self.end)
        except UnreadableHeadersError as error:
            raise UnusualBatchError(str(error)) from error
        if not self.kind.has_destination:
            is_left = FORWARD_DESTINATION in headers
            if is_left or (self.tail and not headers):
                raise UnusualBatchError("a destination is not the last header")
        return headers
