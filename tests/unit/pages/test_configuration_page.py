"""docs/configuration.md agrees with the model. With DUESWEEP_WRITE_PAGES=1 it is written again."""

import json
import os
import re
import types
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from duesweep.config import Config, LimitConfig, QueueConfig, RouteConfig

_PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
_SETTINGS = re.compile(r"(?<=<!-- settings: begin -->\n).*(?=<!-- settings: end -->)", re.DOTALL)
# A field's type does not tell how often the section may be there.
_REPEATED: dict[str, tuple[str, type[BaseModel]]] = {
    "queues": ("[queues.NAME]", QueueConfig),
    "route": ("[[route]]", RouteConfig),
    "limit": ("[[limit]]", LimitConfig),
}
_KINDS = {
    str: "text",
    SecretStr: "secret text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    dict[str, Any]: "table",
}


def test_page_has_each_setting_as_the_model_has_it() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    written = _SETTINGS.sub(lambda _: "\n".join(_lines()) + "\n", text)
    if os.environ.get("DUESWEEP_WRITE_PAGES"):
        _PAGE.write_text(written, encoding="utf-8")

    assert text == written, "renew the page with DUESWEEP_WRITE_PAGES=1, and read it"


def test_each_setting_has_a_meaning_in_a_sentence() -> None:
    for _, model in _sections():
        for name, field in model.model_fields.items():
            assert field.description, f"{model.__name__}.{name}"
            assert field.description.endswith("."), f"{model.__name__}.{name}"


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in Config.model_fields.items():
        if name in _REPEATED:
            yield _REPEATED[name]
        else:
            assert isinstance(field.annotation, type)
            yield f"[{name}]", field.annotation


def _lines() -> Iterator[str]:
    for header, model in _sections():
        yield f"\n## `{header}`\n"
        yield "| setting | value | default | meaning |\n|---|---|---|---|"
        for name, field in model.model_fields.items():
            meaning = str(field.description)
            yield f"| `{field.alias or name}` | {_value(field)} | {_default(field)} | {meaning} |"
    yield ""


def _value(field: FieldInfo) -> str:
    kind = " or ".join(dict.fromkeys(_kinds(field.annotation)))
    least = [f"from {each.ge:,}" for each in field.metadata if isinstance(each, Ge)]
    above = [f"above {each.gt:,}" for each in field.metadata if isinstance(each, Gt)]
    most = [f"to {each.le:,}" for each in field.metadata if isinstance(each, Le)]
    return " ".join([kind, *least, *above, *most])


def _kinds(kind: Any) -> Iterator[str]:
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        for each in typing.get_args(kind):
            yield from _kinds(each)
    elif origin is Literal:
        yield from (f"`{each}`" for each in typing.get_args(kind))
    elif origin is tuple:
        yield f"list of {next(_kinds(typing.get_args(kind)[0]))}"
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        yield from (f"`{each}`" for each in kind)
    elif kind is not types.NoneType:
        yield _KINDS[kind]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    default = field.get_default(call_default_factory=True)
    if default is None or default == {}:
        return "see meaning" if "Default:" in str(field.description) else "none"
    return f"`{json.dumps(default)}`"
