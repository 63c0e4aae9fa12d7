"""Messages that move from the delayed table into a queue table beside it.

Their bodies stay in the server. Their headers are read here, because only the receivers' own rules
tell whether they can be read: whatever is unusual rolls the batch back, and the careful form runs
it. The server cuts the forward destination off; that is right if what is left is an object with
members, none of which is that header.
"""

from array import array
from dataclasses import dataclass
from typing import Any

from duesweep.core.errors import UnreadableHeadersError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION, Headers, read_json
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID, first_type
from duesweep.drivers.postgresql.wire import start_of_ids
from duesweep.stores.kinds import TableKind
from duesweep.stores.tombstone import Tombstones

# What no JSON has is between the headers of two messages.
_BETWEEN = "\x1f"
# Stands for the instant of an infinite Due.
_NEVER = -(2**63)


@dataclass(frozen=True, slots=True)
class Move:
    """How messages with one destination move. `forward` is how the store has the destination
    written, `destination` is its address, and `queue` the table.
    """

    kind: TableKind
    forward: str
    destination: str
    queue: str

    @property
    def names(self) -> dict[str, str]:
        """What the statement has in braces besides the store's own names."""
        return {"queue": self.queue}

    @property
    def values(self) -> dict[str, object]:
        """The statement's values besides those of a claim."""
        return {"forward": self.forward, "never": _NEVER, "time": start_of_ids()}

    def read(self, row: Any) -> Tombstones:
        """The messages of the row that the statement `move` returned, as if none had failed before.

        Raises `UnusualBatchError` if one of them, or the queue, is unusual.
        """
        count: int = row.messages
        if not count:
            return Tombstones()
        if row.arrived != count:
            raise UnusualBatchError(f"{self.queue} took {row.arrived} of {count} messages")
        texts = row.headers.split(_BETWEEN) if row.have_one_destination else ()
        if len(texts) != count:
            raise UnusualBatchError("headers are no JSON, or have another destination")
        read = [self._read_headers(text) for text in texts]
        return Tombstones(
            keys=row.keys.split(","),
            message_ids=[headers.get(MESSAGE_ID) for headers in read],
            message_types=[first_type(headers.get(ENCLOSED_MESSAGE_TYPES)) for headers in read],
            destinations=[self.destination] * count,
            queues=[self.queue] * count,
            instants_us=[None if us == _NEVER else us for us in _numbers(row.instants_us)],
            attempts=[0] * count,
            body_bytes=_numbers(row.body_bytes),
            deferred=[False] * count,
        )

    def _read_headers(self, text: str) -> Headers:
        """The headers as they are delivered, of the text before the forward destination."""
        is_cut = bool(self.forward) and not self.kind.has_destination
        try:
            headers = read_json(text + "}" if is_cut else text)
        except UnreadableHeadersError as error:
            raise UnusualBatchError(str(error)) from error
        if not self.kind.has_destination:
            is_left = FORWARD_DESTINATION in headers
            if is_left or (is_cut and not headers):
                raise UnusualBatchError("a destination is not the last header")
        return headers


def _numbers(sent: bytes) -> list[int]:
    """Numbers of eight bytes, in the server's order."""
    numbers = array("q", sent)
    numbers.byteswap()
    return numbers.tolist()
