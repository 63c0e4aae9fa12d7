"""What is wrong with a configuration, in a sentence each."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import BaseModel

from duesweep.config.model import ENVIRONMENT, Config
from duesweep.config.sections import QueueConfig, RouteConfig

# By pydantic's names for what is wrong.
_SECTION = ("model_type", "model_attributes_type", "dict_type")
_REASONS = {
    **dict.fromkeys(_SECTION, "it is a section with settings of its own, and was given as a value"),
    "tuple_type": "it is a list of sections, each headed [[route]]",
    **dict.fromkeys(["string_too_short", "too_short"], "it is empty"),
}


def sentences_of(errors: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """What pydantic's errors say. A section that is missing misses all that it has to hold."""
    for error in errors:
        section = Config.model_fields.get(str(error["loc"][0]))
        model = section.annotation if section else None
        if error["type"] == "missing" and len(error["loc"]) == 1 and _is_section(model):
            for name, field in model.model_fields.items():
                if field.is_required():
                    yield not_set(f"{error['loc'][0]}.{field.alias or name}")
        else:
            yield _sentence_of(error)


def not_set(path: str) -> str:
    """That a setting is missing, and all the ways to give it."""
    section, _, key = path.rpartition(".")
    return (
        f"{path} is not set; write {key} = … under [{section}] in the configuration file, set "
        f"{variable_of(path)} in the environment, or give --set {path}=…"
    )


def variable_of(path: str) -> str:
    """The variable of the environment that gives a setting."""
    prefix, delimiter = ENVIRONMENT
    return prefix + path.upper().replace(".", delimiter)


def unknown_setting(path: str) -> str:
    """That there is no such setting, and what may have been meant."""
    return f"There is no setting {path}{_hint(path, _known(path))}"


def _sentence_of(error: Mapping[str, Any]) -> str:
    match error["type"], [*error["loc"]]:
        case _, ["store", "kind"] if not isinstance(error["input"], bool | int | float):
            return (
                f"store.kind is wrong: {error['input']!r} is none of postgresql, sqlserver, "
                "msmq and sql-persistence, nor a store of your own as package.module:Class"
            )
        case "extra_forbidden", ["route", int() as index, str() as key]:
            hint = _hint(f"route.{key}", [f"route.{name}" for name in RouteConfig.model_fields])
            return f"There is no setting {key} in [[route]] {index + 1}{hint}"
        case "extra_forbidden", location:
            return unknown_setting(".".join(part for part in location if isinstance(part, str)))
        case "missing", ["route", *_, key]:
            path = _path(error["loc"])
            return f"{path} is not set; give it in the configuration file, as {key} = … under it"
        case "missing", _:
            return not_set(_path(error["loc"]))
    return f"{_path(error['loc'])} is wrong: {_reason(error)}"


def _hint(path: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(
        path.rsplit(".", 1)[-1], [key.rsplit(".", 1)[-1] for key in known], n=1
    )
    return f"; did you mean {near[0]}?" if near else ""


def _path(location: Sequence[str | int]) -> str:
    """A setting's name. Routes are counted as people do, from 1."""
    match location:
        case ["route", int() as index, *keys]:
            return f"{'.'.join(map(str, keys))} of [[route]] {index + 1}".removeprefix(" of ")
    # Where a setting has several forms, pydantic adds a description of each, in brackets.
    return ".".join(str(part) for part in location if "[" not in str(part))


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] in _SECTION and isinstance(error["input"], list):
        if error["loc"] == ("queues",):
            return "it is one section for each connection, as [queues.default], and no list"
        return f"it is one section, headed [{_path(error['loc'])}], and no list of them"
    return _REASONS.get(error["type"]) or str(error["msg"]).lower()


def _is_section(model: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(model, type) and issubclass(model, BaseModel)


def settings(queue: str = "queues.default") -> Sequence[str]:
    """The names of all settings; those of a connection with this section."""
    sections = {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if name not in {"queues", "route"}
    } | {queue: QueueConfig, "route": RouteConfig}
    return [
        f"{section}.{field.alias or name}"
        for section, model in sections.items()
        if _is_section(model)
        for name, field in model.model_fields.items()
    ]


def _known(path: str) -> Sequence[str]:
    """Sections and settings; those of a connection under its name in `path`, if it has one."""
    match path.split("."):
        case ["queues", name, _, *_]:
            queue = f"queues.{name}"
        case _:
            queue = "queues.default"
    sections = {*Config.model_fields} - {"queues"} | {queue}
    return [*sorted(sections), *settings(queue)]
