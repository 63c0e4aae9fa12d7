"""The number of the format in which journal and ledger are kept.

It is raised by a change with which an older version would lose or double what a sweep did. A new
column that an older version may leave empty is no such change.
"""

import re

from duesweep.core.errors import Problem

FORMAT = 1
# The first version that knows it.
_SINCE = "0.1.0"
# What journal and ledger are marked with. Without a mark they are of format 1: versions before
# this one left none.
FORMAT_MARK = f"duesweep format {FORMAT} ({_SINCE} or newer)"
_MARK = re.compile(r"duesweep format (?P<number>\d+)(?: \((?P<since>\S+) or newer\))?")


def unknown_format(what: str, mark: str | None) -> Problem | None:
    """What is wrong if `what` has a newer format than this version knows; None: nothing."""
    found = _MARK.search(mark or "")
    if found is None or int(found["number"]) <= FORMAT:
        return None
    version = f"duesweep {found['since']}" if found["since"] else "the version that made it"
    return Problem(
        f"{what} has format {found['number']}, and this version of duesweep knows none above "
        f"{FORMAT}",
        f"use {version} or a newer one",
    )
