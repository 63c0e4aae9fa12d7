"""The problems of a configuration, in words for people, and where it was written: on the command
line, in the environment, or in a line of a file.
"""

import difflib
import tomllib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

from duesweep.config.files import EndpointSettings, Location, text_of
from duesweep.config.model import LISTED, Config, is_section, settings, variable_of
from duesweep.core.errors import Problem, shorten
from duesweep.drivers.dsn import holds_password
from duesweep.drivers.servers import STORE_KINDS

# No setting has this many parts, the section of a fleet's endpoint included.
_DEEPEST = 8
# So much of a wrong value is shown.
_LONGEST = 200
# By pydantic's error types of numbers and choices, the required value, and the bound's name.
_BOUNDS = {
    "greater_than_equal": ("at least {}", "ge"),
    "greater_than": ("more than {}", "gt"),
    "less_than_equal": ("at most {}", "le"),
    "less_than": ("less than {}", "lt"),
    "bool_type": ("true or false", ""),
    "bool_parsing": ("true or false", ""),
    "float_parsing": ("a number", ""),
    "finite_number": ("a finite number", ""),
    "literal_error": ("{}", "expected"),
    "enum": ("{}", "expected"),
}
# By pydantic's error types.
_SECTION = ("model_type", "model_attributes_type", "dict_type")
_REASONS = {
    **dict.fromkeys(_SECTION, "it is a section, and a value was given"),
    "tuple_type": 'it is a list, as ["one", "two"]',
    **dict.fromkeys(["string_too_short", "too_short"], "it is empty"),
}
_UNKNOWN, _MISSING = "extra_forbidden", "missing"


@dataclass(frozen=True, slots=True)
class Places:
    """The places where the settings of an endpoint were written. `texts` of the environment and of
    the command line override its own.
    """

    settings: EndpointSettings
    texts: dict[Location, str] = field(default_factory=dict)

    def is_text(self, location: Location) -> bool:
        """Whether a setting, or the section around it, is of the environment or the command
        line.
        """
        return any(location[:depth] in self.texts for depth in range(1, len(location) + 1))

    def of(self, location: Sequence[str | int]) -> str | None:
        """The place of a setting, else of the section around it; None if neither was written."""
        file = self.settings.file
        text = "" if file is None else text_of(file)
        for depth in range(min(len(location), _DEEPEST), 0, -1):
            path = tuple(location[:depth])
            if path in self.texts:
                return self.texts[path]
            for section in self.settings.sections:
                line = line_of(text, (*section, *path))
                if line is not None:
                    return f"{shorten(str(file))}:{line}"
        return None


def line_of(text: str, location: Location) -> int | None:
    """The line of a TOML text, from 1, in which a section or setting begins; None: it has none."""
    count = text.count("\n") + 1

    def has_begun(line: int) -> bool:
        """Whether it is there at the end of this line, or of the value that continues after it."""
        ends = (_content_until(text, end) for end in range(line, count + 1))
        return _holds(next((found for found in ends if found is not None), {}), location)

    line = bisect_left(range(count + 1), x=True, key=has_begun)
    return line if line <= count else None


@lru_cache(maxsize=32)
def _content_until(text: str, line: int) -> Mapping[str, Any] | None:
    """The content of a TOML text up to the end of this line; None: the end is inside a value."""
    try:
        return tomllib.loads("".join(f"{each}\n" for each in text.split("\n")[:line]))
    except tomllib.TOMLDecodeError:
        return None


def _holds(content: Any, location: Location) -> bool:
    for part in location:
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def problems_of(errors: Collection[Mapping[str, Any]], places: Places) -> Iterator[Problem]:
    """Pydantic's errors as problems with their places. Unknown settings come first, and settings
    that are missing because of a misspelt name are left out.
    """
    unknown = [error for error in errors if error["type"] == _UNKNOWN]
    meant = []
    for error in unknown:
        location = _whole(error)
        near = _near(*_path_and_known(location))
        if near:
            meant.append(_located(near, location))
        yield placed(_problem_of(error), places.of(location))
    others = [error for error in errors if error["type"] != _UNKNOWN and not _is_other_form(error)]
    for error in chain.from_iterable(map(_each_missing, others)):
        location = tuple(error["loc"])
        follows = any(location[: len(start)] == start for start in meant)
        if not (error["type"] == _MISSING and follows):
            yield placed(_problem_of(error), places.of(location))


def _is_other_form(error: Mapping[str, Any]) -> bool:
    """Whether it only says that a setting that may be a list is none: its text was wrong."""
    return error["type"] == "tuple_type" and any("[" in str(part) for part in error["loc"])


def placed(problem: Problem, place: str | None) -> Problem:
    """The same problem, with its place in front."""
    return problem if place is None else replace(problem, text=f"{place}: {problem.text}")


def _each_missing(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The same error; for a missing section, one for each required setting in it."""
    section = Config.model_fields.get(str(error["loc"][0]))
    model = section.annotation if section else None
    if error["type"] == _MISSING and len(error["loc"]) == 1 and is_section(model):
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
        case [str() as section, int(), str() as key] if section in LISTED:
            return f"{section}.{key}", [
                f"{section}.{name}" for name in LISTED[section].model_fields
            ]
    path = ".".join(part for part in location if isinstance(part, str))
    return path, _known(path)


def _located(near: str, location: Sequence[str | int]) -> tuple[str | int, ...]:
    """The place at which the setting `near` is missing if the unknown one at `location` stands for
    it.
    """
    section, *keys = near.split(".")
    number = [part for part in location if isinstance(part, int)]
    return (section, *number, *keys) if section in LISTED else (section, *keys)


def _missing_setting(location: Sequence[str | int]) -> Problem:
    """That a setting is missing, and all the ways to give it."""
    path, (*_, key) = _path(location), location
    if location[0] in LISTED:
        advice = f"give it in the configuration file, as {key} = … under it"
        return Problem(f"{path} is not set", advice)
    section = path.rpartition(".")[0]
    return Problem(
        f"{path} is not set",
        f"write {key} = … under [{section}], or set {variable_of(path)} in the environment",
    )


def _no_section(path: str) -> Problem:
    """That a section has a value, and how its settings are given."""
    variables = [variable_of(each) for each in settings() if each.startswith(f"{path}.")]
    return Problem(
        f"{path} is wrong: it is a section, and a value was given",
        f"set each of its settings, in the environment as {', '.join(variables[:3])}"
        if variables
        else None,
    )


def unknown_setting(path: str) -> Problem:
    """That there is no such setting, and which one may be meant."""
    if not path:
        return Problem("There is no setting with an empty name")
    return Problem(f"There is no setting {path}", _hint(path, _known(path)))


def _unknown_section(path: str) -> Problem:
    """That there is no such section, and which one may be meant."""
    sections = [name for name in _known(path) if name not in settings("queues.default")]
    near = difflib.get_close_matches(path, sections) or [
        name for name in sections if difflib.get_close_matches(path, [name.partition(".")[0]])
    ]
    # The best begins like it: [retries] is meant to be [retry], not [metrics].
    best = max(near, key=lambda name: name[:3] == path[:3], default=None)
    return Problem(f"There is no section [{path}]", f"did you mean [{best}]?" if best else None)


def _problem_of(error: Mapping[str, Any]) -> Problem:
    if error["type"] in _SECTION and isinstance(error["input"], str):
        return _no_section(_path(error["loc"]))
    match error["type"], [*error["loc"]]:
        case _, ["store", "kind"] if not isinstance(error["input"], bool | int | float):
            return Problem(
                f"store.kind is wrong: it is {shown(repr(error['input']))}, and must be one of "
                f"{', '.join(STORE_KINDS)}, or a custom store as package.module:Class",
                _hint(str(error["input"]).lower(), STORE_KINDS),
            )
        case "extra_forbidden", [str() as section, int() as index, str() as key]:
            hint = _hint(*_path_and_known(error["loc"]))
            return Problem(f"There is no setting {key} in [[{section}]] {index + 1}", hint)
        case "extra_forbidden", [*location]:
            path = _path_and_known(_whole(error))[0]
            is_table = bool(path) and len(location) == 1 and isinstance(error["input"], Mapping)
            return (_unknown_section if is_table else unknown_setting)(path)
        case "missing", [*location]:
            return _missing_setting(location)
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
        case [str() as section, int() as index, *keys] if section in LISTED:
            return f"{'.'.join(map(str, keys))} of [[{section}]] {index + 1}".removeprefix(" of ")
    # If a setting has several forms, pydantic adds a description of each, in brackets.
    return ".".join(str(part) for part in location if "[" not in str(part))


def _reason(error: Mapping[str, Any]) -> str:
    kind, value = error["type"], error["input"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in _SECTION and isinstance(value, list | tuple):
        if error["loc"] == ("queues",):
            return "it must be one section for each connection, as [queues.default], not a list"
        return f"it must be one section with the header [{_path(error['loc'])}], not a list"
    if kind == "tuple_type" and error["loc"][0] in LISTED:
        return f"it is a list of sections, each with the header [[{error['loc'][0]}]]"
    if kind in _BOUNDS:
        words, bound = _BOUNDS[kind]
        must = words.format(error.get("ctx", {}).get(bound))
        return f"it is {shown(value)}, and must be {must}"
    return _wrong_type(kind, value) or _REASONS.get(kind) or str(error["msg"]).lower()


def _wrong_type(kind: str, value: object) -> str | None:
    """Why a number or a text is none, where the other type is there; None: it is another error."""
    is_what = f"it is {str(value).lower()}" if isinstance(value, bool) else "it is a number"
    match kind, value:
        case "string_type", bool() | int() | float():
            return f"{is_what}, and must be text: write it in quotes"
        case "int_type" | "float_type", bool():
            return f"{is_what}, and must be a number"
        case "int_type" | "float_type", str():
            return "it is text, and must be a number: write it without quotes"
        case "int_type", float():
            return "it must be a whole number, without a decimal point"
        case "int_parsing", str():
            is_fraction = value.replace(".", "", 1).isdecimal()
            it_is = "it must be" if is_fraction else f"it is {shown(value)}, and must be"
            return f"{it_is} a whole number{', without a decimal point' * is_fraction}"
    return None


def shown(value: object) -> str:
    """A wrong value of a number or a choice. It may be a misplaced password."""
    text = str(value)
    return "a dsn" if holds_password(text) else shorten(text, _LONGEST)


def _known(path: str) -> Sequence[str]:
    """All sections and settings; a queue connection's under the name that `path` has."""
    match path.split("."):
        case [section, name, *_] if difflib.get_close_matches(section, ["queues"]):
            queue = f"queues.{name}"
        case _:
            queue = "queues.default"
    sections = {*Config.model_fields} - {"queues"} | {queue}
    return [*sorted(sections), *settings(queue)]
