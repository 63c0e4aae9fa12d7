"""Values as they were given: TOML has types; environment and command line have text alone."""

import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from annotated_types import MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo

_WHOLE = re.compile(r"\s*[+-]?[\d_]+\s*")


class Text(str):
    """What the environment or the command line gave: it may stand for a number."""

    __slots__ = ()


def as_text(value: Any) -> Any:
    """The same value, its texts marked as `Text`."""
    return _with_texts(value, Text)


def plain(value: Any) -> Any:
    """The same value without the marks."""
    return _with_texts(value, str)


def misfit(value: Any, field: FieldInfo) -> str | None:
    """Why a value is of no type that the field takes; None where pydantic is to judge it."""
    kinds = _kinds(field)
    if kinds & {int, float}:
        return _no_number(value, is_whole=float not in kinds)
    if not kinds & {str, SecretStr}:
        return None
    if isinstance(value, bool | int | float):
        is_what = f"it is {_shown(value)}" if isinstance(value, bool) else "it is a number"
        return f"{is_what}, and has to be text: write it in quotes"
    is_filled = any(isinstance(bound, MinLen) for bound in field.metadata)
    return "it is empty" if is_filled and _has_blank(value) else None


def _no_number(value: Any, *, is_whole: bool) -> str | None:
    if isinstance(value, bool):
        return f"it is {_shown(value)}, and has to be a number"
    if isinstance(value, str) and not isinstance(value, Text):
        return "it is text, and has to be a number: write it without quotes"
    if is_whole and _is_fraction(value):
        return "it has to be a whole number, without a decimal point"
    return None


def _is_fraction(value: Any) -> bool:
    if not isinstance(value, Text):
        return isinstance(value, float)
    try:
        float(value)
    except ValueError:
        return False
    return _WHOLE.fullmatch(value) is None


def _has_blank(value: Any) -> bool:
    texts = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(text, str) and not text.strip() for text in texts)


def _kinds(field: FieldInfo) -> set[Any]:
    kind = field.annotation
    return set(get_args(kind)) - {NoneType} if get_origin(kind) is UnionType else {kind}


def _shown(value: bool) -> str:  # noqa: FBT001 - as TOML writes it
    return str(value).lower()


def _with_texts(value: Any, kind: type[str]) -> Any:
    if isinstance(value, str):
        return kind(value)
    if isinstance(value, Mapping):
        return {name: _with_texts(each, kind) for name, each in value.items()}
    return [_with_texts(each, kind) for each in value] if isinstance(value, list) else value
