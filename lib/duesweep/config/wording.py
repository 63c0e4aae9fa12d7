"""What pydantic finds wrong with a configuration, in words for people."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from pydantic import BaseModel

from duesweep.config.model import ENVIRONMENT, Config
from duesweep.config.sections import LimitConfig, QueueConfig, RouteConfig
from duesweep.errors import Problem

# Sections that may be there several times.
_LISTED: dict[str, type[BaseModel]] = {"route": RouteConfig, "limit": LimitConfig}
# By pydantic's error types.
_SECTION = ("model_type", "model_attributes_type", "dict_type")
_REASONS = {
    **dict.fromkeys(_SECTION, "it is a section, and a value was given"),
    "tuple_type": "it is a list",
    **dict.fromkeys(["string_too_short", "too_short"], "it is empty"),
}


def problems_of(errors: Iterable[Mapping[str, Any]]) -> Iterator[Problem]:
    """Pydantic's errors as problems. For a missing section, one for each required setting in it."""
    for error in errors:
        section = Config.model_fields.get(str(error["loc"][0]))
        model = section.annotation if section else None
        if error["type"] == "missing" and len(error["loc"]) == 1 and _is_section(model):
            for name, field in model.model_fields.items():
                if field.is_required():
                    yield _missing_setting(f"{error['loc'][0]}.{field.alias or name}")
        else:
            yield _problem_of(error)


def _missing_setting(path: str) -> Problem:
    """That a setting is missing, and all the ways to give it."""
    section, _, key = path.rpartition(".")
    return Problem(
        f"{path} is not set",
        f"write {key} = … under [{section}] in the configuration file, set {variable_of(path)} in "
        f"the environment, or give --set {path}=…",
    )


def variable_of(path: str) -> str:
    """The environment variable that gives a setting."""
    prefix, delimiter = ENVIRONMENT
    return prefix + path.upper().replace(".", delimiter)


def unknown_setting(path: str) -> Problem:
    """That there is no such setting, and which one may be meant."""
    if not path:
        return Problem("There is no setting with an empty name")
    return Problem(f"There is no setting {path}", _hint(path, _known(path)))


def _problem_of(error: Mapping[str, Any]) -> Problem:
    match error["type"], [*error["loc"]]:
        case _, ["store", "kind"] if not isinstance(error["input"], bool | int | float):
            return Problem(
                f"store.kind is wrong: {error['input']!r} is none of postgresql, sqlserver, "
                "msmq and sql-persistence, nor a custom store as package.module:Class"
            )
        case "extra_forbidden", [str() as section, int() as index, str() as key]:
            known = [f"{section}.{name}" for name in _LISTED[section].model_fields]
            hint = _hint(f"{section}.{key}", known)
            return Problem(f"There is no setting {key} in [[{section}]] {index + 1}", hint)
        case "extra_forbidden", location:
            return unknown_setting(".".join(part for part in location if isinstance(part, str)))
        case "missing", [str() as section, *_, key] if section in _LISTED:
            path = _path(error["loc"])
            return Problem(
                f"{path} is not set", f"give it in the configuration file, as {key} = … under it"
            )
        case "missing", _:
            return _missing_setting(_path(error["loc"]))
    return Problem(f"{_path(error['loc'])} is wrong: {_reason(error)}")


def _hint(path: str, known: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(
        path.rsplit(".", 1)[-1], [key.rsplit(".", 1)[-1] for key in known], n=1
    )
    return f"did you mean {near[0]}?" if near else None


def _path(location: Sequence[str | int]) -> str:
    """A setting's name. Sections that may be there several times are counted from 1."""
    match location:
        case [str() as section, int() as index, *keys] if section in _LISTED:
            return f"{'.'.join(map(str, keys))} of [[{section}]] {index + 1}".removeprefix(" of ")
    # Where a setting has several forms, pydantic adds a description of each, in brackets.
    return ".".join(str(part) for part in location if "[" not in str(part))


def _reason(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] in _SECTION and isinstance(error["input"], list):
        if error["loc"] == ("queues",):
            return "it must be one section for each connection, as [queues.default], not a list"
        return f"it must be one section with the header [{_path(error['loc'])}], not a list"
    if error["type"] == "tuple_type" and error["loc"][0] in _LISTED:
        return f"it is a list of sections, each with the header [[{error['loc'][0]}]]"
    return _REASONS.get(error["type"]) or str(error["msg"]).lower()


def _is_section(model: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(model, type) and issubclass(model, BaseModel)


def settings(queue: str = "queues.default") -> Sequence[str]:
    """The names of all settings; those of a queue connection under the section `queue`."""
    sections = {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if name not in {"queues", *_LISTED}
    } | {queue: QueueConfig, **_LISTED}
    return [
        f"{section}.{field.alias or name}"
        for section, model in sections.items()
        if _is_section(model)
        for name, field in model.model_fields.items()
    ]


def _known(path: str) -> Sequence[str]:
    """All sections and settings; those of a queue connection under the name that `path` has."""
    match path.split("."):
        case ["queues", name, _, *_]:
            queue = f"queues.{name}"
        case _:
            queue = "queues.default"
    sections = {*Config.model_fields} - {"queues"} | {queue}
    return [*sorted(sections), *settings(queue)]
