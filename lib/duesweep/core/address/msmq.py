"""Addresses of the MSMQ transport: a queue, and optionally its machine.

The grammar is that of the transport's `MsmqAddress.Parse`: `queue@machine`. One difference: the
transport refuses a second `@`, and here all text after the first `@` is the machine. So a routing
table can also read addresses of the SQL Server transport (`table@[schema]@[catalog]`).
"""

from dataclasses import dataclass

from duesweep.core.address.characters import refuse_unstorable
from duesweep.core.errors import UnreadableAddressError


@dataclass(frozen=True, slots=True)
class MsmqAddress:
    """A queue and its machine as they were written; None is the sender's machine."""

    queue: str
    machine: str | None = None

    def __str__(self) -> str:
        """The address as NServiceBus writes it."""
        return self.queue if self.machine is None else f"{self.queue}@{self.machine}"

    @classmethod
    def parse(cls, address: str | None) -> "MsmqAddress":
        """The queue that `address` names.

        Raises `UnreadableAddressError` for an address that can name no queue.
        """
        if address is None:
            raise UnreadableAddressError("There is no destination")
        refuse_unstorable(address)
        queue, _, machine = address.partition("@")
        if not queue.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no queue")
        return cls(queue, machine if machine.strip() else None)
