"""Characters that no address can have, whatever its grammar."""

import re

from duesweep.core.errors import UnreadableAddressError

_SURROGATES = re.compile("[\ud800-\udfff]")


def refuse_unstorable(address: str) -> None:
    """Raise `UnreadableAddressError` for an address with a NUL or half of a surrogate pair, which
    databases and brokers do not take in a name.
    """
    if "\0" in address:
        raise UnreadableAddressError(f"The destination {address!r} holds a NUL")
    if _SURROGATES.search(address):
        raise UnreadableAddressError(f"The destination {address!r} holds half of a surrogate pair")
