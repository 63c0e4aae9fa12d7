"""The type of a given value: TOML has types, the environment and the command line only text."""

import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from annotated_types import MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo

# Far more than a dsn with many servers has.
_LONGEST = 10_000
_WHOLE = re.compile(r"\s*[+-]?[\d_]+\s*")


class Text(str):
    """A text from the environment or the command line, which may be meant as a number."""

    __slots__ = ()


def as_text(value: Any) -> Any:
    """The same value, with each text in it marked as `Text`."""
    return _with_texts(value, Text)


def without_marks(value: Any) -> Any:
    """The same value without the marks."""
    return _with_texts(value, str)


def type_problem(value: Any, field: FieldInfo) -> str | None:
    """Why the field does not accept a value of this type; None if pydantic has to decide."""
    kinds = _kinds(field)
    if kinds & {int, float}:
        return _number_problem(value, is_whole=float not in kinds)
    if not kinds & {str, SecretStr}:
        return None
    if isinstance(value, bool | int | float):
        is_what = f"it is {_as_toml(value)}" if isinstance(value, bool) else "it is a number"
        return f"{is_what}, and must be text: write it in quotes"
    return _text_problem(_texts_in(value), field)


def _number_problem(value: Any, *, is_whole: bool) -> str | None:
    if isinstance(value, bool):
        return f"it is {_as_toml(value)}, and must be a number"
    if isinstance(value, str) and not isinstance(value, Text):
        return "it is text, and must be a number: write it without quotes"
    if is_whole and _is_fraction(value):
        return "it must be a whole number, without a decimal point"
    return None


def _is_fraction(value: Any) -> bool:
    if not isinstance(value, Text):
        return isinstance(value, float)
    try:
        float(value)
    except ValueError:
        return False
    return _WHOLE.fullmatch(value) is None


def _text_problem(texts: Sequence[str], field: FieldInfo) -> str | None:
    for text in texts:
        if len(text) > _LONGEST:
            return f"it has {len(text):,} characters, and may have {_LONGEST:,}"
        if "\0" in text:
            return "it holds a NUL, the character with the number 0"
    is_filled = any(isinstance(bound, MinLen) for bound in field.metadata)
    return "it is empty" if is_filled and not all(map(str.strip, texts)) else None


def _texts_in(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [text for text in values if isinstance(text, str)]


def _kinds(field: FieldInfo) -> set[Any]:
    kind = field.annotation
    return set(get_args(kind)) - {NoneType} if get_origin(kind) is UnionType else {kind}


def _as_toml(value: bool) -> str:  # noqa: FBT001 - the value is what it converts
    return str(value).lower()


def _with_texts(value: Any, kind: type[str]) -> Any:
    if isinstance(value, str):
        return kind(value)
    if isinstance(value, Mapping):
        return {name: _with_texts(each, kind) for name, each in value.items()}
    return [_with_texts(each, kind) for each in value] if isinstance(value, list) else value
