"""To which destinations messages may be delivered at all."""

from dataclasses import dataclass

from duesweep.core.errors import MessageError
from duesweep.core.patterns import fits_destination


class DestinationNotAllowedError(MessageError):
    """The configuration does not allow the destination."""

    stored_name = "duesweep.core.allowed.DestinationNotAllowedError"


@dataclass(frozen=True, slots=True)
class Allowed:
    """Destinations that fit one of `patterns`, in which `*` stands for any text, and the error
    queue. The endpoint's own queue, which no address names, is always allowed.
    """

    patterns: tuple[str, ...] = ("*",)
    error_queue: str | None = None

    def check(self, address: str) -> None:
        """Raise `DestinationNotAllowedError` for an address that is not allowed."""
        if address == self.error_queue:
            return
        if not any(fits_destination(address, pattern) for pattern in self.patterns):
            raise DestinationNotAllowedError(
                f"sweep.allow_destinations does not allow the destination {address!r}; add it "
                "there if messages may go to it"
            )
