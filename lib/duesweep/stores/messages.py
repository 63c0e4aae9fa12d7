"""A message to store."""

from dataclasses import dataclass
from datetime import datetime

from duesweep.core.headers import Headers


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store until it is `due`, an aware datetime. `destination` None is the endpoint's
    own queue. `stored_headers` is the text that a store of the same kind had for these headers and
    this destination, to be stored as it is; None: the store writes one. `instant_us` is the Due in
    microseconds since 1970-01-01 UTC where it is outside of Python's years, and `due` the nearest
    instant in them; None: `due` is exact.
    """

    destination: str | None
    headers: Headers
    body: bytes | None
    due: datetime
    stored_headers: str | None = None
    instant_us: int | None = None
