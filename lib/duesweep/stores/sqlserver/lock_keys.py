"""The texts by which an operator's command finds and locks a message that it was shown."""

from duesweep.stores.sqlserver.kinds import SqlServerTableKind

_SEPARATOR = "/"


def lock_key(kind: SqlServerTableKind, due: str, key: str) -> str:
    """The message's key; where no key is indexed, its Due to the tick, and its key."""
    return key if kind.has_indexed_key else f"{due}{_SEPARATOR}{key}"


def split_lock_key(text: str) -> tuple[str, str]:
    """The Due and the key in the lock key of a table whose keys are not indexed."""
    due, _, key = text.partition(_SEPARATOR)
    return due, key
