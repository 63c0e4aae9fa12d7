"""Addresses of the MSMQ transport: a queue and, perhaps, the machine that it is on.

The grammar is that of the transport's `MsmqAddress.Parse`: `queue@machine`. Where the transport
refuses a second `@`, this does not: whatever follows the first is the machine, so that a routing
table can also read what the SQL Server transport wrote (`table@[schema]@[catalog]`).
"""

from dataclasses import dataclass

from duesweep.errors import UnreadableAddressError


@dataclass(frozen=True, slots=True)
class MsmqAddress:
    """A queue and its machine as they were written; None is the machine of whoever sends."""

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
        if "\0" in address:
            raise UnreadableAddressError(f"The destination {address!r} holds a NUL")
        queue, _, machine = address.partition("@")
        if not queue.strip():
            raise UnreadableAddressError(f"The destination {address!r} names no queue")
        return cls(queue, machine if machine.strip() else None)
