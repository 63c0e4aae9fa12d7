"""Any value as JSON has it: its fields by their names, times in ISO 8601, bytes in base64."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from duesweep.core.result import exit_code_of


def plain(value: object) -> Any:  # noqa: PLR0911 - one for each kind of value
    """What `json.dumps` takes. A field that a value does not show of itself (`repr=False`) is in no
    document: it is there for programs that act on the value.
    """
    match value:
        case Enum():
            return value.value
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case UUID():
            return str(value)
        case Mapping():
            return {str(plain(name)): plain(each) for name, each in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in value]
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value) if each.repr}
    return value


def whole(value: object) -> dict[str, Any]:
    """The document of a command's result: with `exit_code` and `error`, as if an error ends it."""
    found: dict[str, Any] = plain(value)
    error = getattr(value, "error", None)
    ended = {"exit_code": int(exit_code_of(value)), "error": None if error is None else str(error)}
    return found | {name: ended[name] for name in ended if name not in found}
