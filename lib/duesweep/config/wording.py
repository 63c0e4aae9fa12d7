"""What pydantic finds wrong with a configuration, in words for people."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeGuard

from pydantic import BaseModel

from duesweep.config.dsn import holds_password
from duesweep.config.model import ENVIRONMENT, Config
from duesweep.config.places import Places
from duesweep.config.sections import LimitConfig, QueueConfig, RouteConfig
from duesweep.core.errors import Problem, shorten

# Sections that may be there several times.
_LISTED: dict[str, type[BaseModel]] = {"route": RouteConfig, "limit": LimitConfig}
_KINDS = ("postgresql", "sqlserver", "msmq", "sql-persistence")
# So much of a wrong value is shown.
_LONGEST = 200
# By pydantic's error types of numbers and choices, what the value must be, and the bound's name.
_BOUNDS = {
    "greater_than_equal": ("at least {}", "ge"),
    "greater_than": ("more than {}", "gt"),
    "less_than_equal": ("at most {}", "le"),
    "less_than": ("less than {}", "lt"),
    "int_parsing": ("a whole number", ""),
    "float_parsing": ("a number", ""),
    "finite_number": ("a finite number", ""),
    "literal_error": ("{}", "expected"),
    "enum": ("{}", "expected"),
}
# By pydantic's error types.
_SECTION = ("model_type", "model_attributes_type", "dict_type")
_REASONS = {
    **dict.fromkeys(_SECTION, "it is a section, and a value was given"),
    "tuple_type": "it is a list",
    **dict.fromkeys(["string_too_short", "too_short"], "it is empty"),
}


_UNKNOWN, _MISSING = "extra_forbidden", "missing"


def problems_of(errors: Sequence[Mapping[str, Any]], places: Places) -> Iterator[Problem]:
    """Pydantic's errors as problems with their places. Unknown settings come first, and what is
    missing because its name was misspelt is left out.
    """
    unknown = [error for error in errors if error["type"] == _UNKNOWN]
    meant = []
    for error in unknown:
        location = _whole(error)
        near = _near(*_path_and_known(location))
        if near:
            meant.append(_located(near, location))
        yield placed(_problem_of(error), places.of(location))
    others = [error for error in errors if error["type"] != _UNKNOWN]
    for error in chain.from_iterable(map(_each_missing, others)):
        location = tuple(error["loc"])
        follows = any(location[: len(start)] == start for start in meant)
        if not (error["type"] == _MISSING and follows):
            yield placed(_problem_of(error), places.of(location))


def placed(problem: Problem, place: str | None) -> Problem:
    """The same problem, with its place in front."""
    return problem if place is None else replace(problem, text=f"{place}: {problem.text}")


def _each_missing(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The same error; for a missing section, one for each required setting in it."""
    section = Config.model_fields.get(str(error["loc"][0]))
    model = section.annotation if section else None
    if error["type"] == _MISSING and len(error["loc"]) == 1 and _is_section(model):
        for name, field in model.model_fields.items():
            if field.is_required():
                yield {**error, "loc": (error["loc"][0], field.alias or name)}
    else:
        yield error


def _whole(error: Mapping[str, Any]) -> tuple[str | int, ...]:
    """The place of an unknown setting. An unknown section with sections in it is named with the
    first of them: `queue.default`, not `queue`.
    """
    location = tuple(error["loc"])
    if len(location) == 1 and isinstance(error["input"], Mapping):
        below = [name for name, each in error["input"].items() if isinstance(each, Mapping)]
        return (*location, *below[:1])
    return location


def _path_and_known(location: Sequence[str | int]) -> tuple[str, Sequence[str]]:
    """The name of an unknown setting, and the names that may be meant."""
    match [*location]:
        case [str() as section, int(), str() as key] if section in _LISTED:
            return f"{section}.{key}", [
                f"{section}.{name}" for name in _LISTED[section].model_fields
            ]
    path = ".".join(part for part in location if isinstance(part, str))
    return path, _known(path)


def _located(near: str, location: Sequence[str | int]) -> tuple[str | int, ...]:
    """Where the setting `near` is missing if the unknown one at `location` stands for it."""
    section, *keys = near.split(".")
    number = [part for part in location if isinstance(part, int)]
    return (section, *number, *keys) if section in _LISTED else (section, *keys)


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
                f"store.kind is wrong: it is {_shown(repr(error['input']))}, and must be one of "
                f"{', '.join(_KINDS)}, or a custom store as package.module:Class",
                _hint(str(error["input"]).lower(), _KINDS),
            )
        case "extra_forbidden", [str() as section, int() as index, str() as key]:
            hint = _hint(*_path_and_known(error["loc"]))
            return Problem(f"There is no setting {key} in [[{section}]] {index + 1}", hint)
        case "extra_forbidden", _:
            return unknown_setting(_path_and_known(_whole(error))[0])
        case "missing", [str() as section, *_, key] if section in _LISTED:
            path = _path(error["loc"])
            return Problem(
                f"{path} is not set", f"give it in the configuration file, as {key} = … under it"
            )
        case "missing", _:
            return _missing_setting(_path(error["loc"]))
    return Problem(f"{_path(error['loc'])} is wrong: {_reason(error)}")


def _hint(path: str, known: Sequence[str]) -> str | None:
    near = _near(path, known)
    return f"did you mean {near}?" if near else None


def _near(path: str, known: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(
        path.rsplit(".", 1)[-1], [key.rsplit(".", 1)[-1] for key in known], n=1
    )
    return near[0] if near else None


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
    if error["type"] in _BOUNDS:
        words, bound = _BOUNDS[error["type"]]
        must = words.format(error.get("ctx", {}).get(bound))
        return f"it is {_shown(error['input'])}, and must be {must}"
    return _REASONS.get(error["type"]) or str(error["msg"]).lower()


def _shown(value: object) -> str:
    """A wrong value of a number or a choice. Somebody may have written a password there."""
    text = str(value)
    return "a dsn" if holds_password(text) else shorten(text, _LONGEST)


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
        case [section, name, *_] if difflib.get_close_matches(section, ["queues"]):
            queue = f"queues.{name}"
        case _:
            queue = "queues.default"
    sections = {*Config.model_fields} - {"queues"} | {queue}
    return [*sorted(sections), *settings(queue)]
