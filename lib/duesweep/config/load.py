"""Reads a configuration: the environment overrides a TOML file, the command line overrides both.

Unknown keys are refused. Defaults are applied once, after merging.
"""

import math
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from duesweep.config.files import (
    Content,
    EndpointSettings,
    merged,
    only_one,
    settings_of,
)
from duesweep.config.model import (
    ENVIRONMENT,
    Config,
    InDsn,
    InFile,
    QueueConfig,
    is_section,
    settings,
    variable_of,
)
from duesweep.config.rules import first_problem
from duesweep.config.wording import Places, placed, problems_of, shown, unknown_setting
from duesweep.core.errors import ConfigError, Problem, shorten

# As pydantic masks.
_MASK = "**********"
# At most this many problems are reported at once.
_SHOWN = 20
# No setting has this many parts, and each nests the next.
_DEEPEST = 100
_BOOLEANS = {"true": True, "false": False}


class _Given(NamedTuple):
    """A setting as text: of the environment, or of the command line."""

    path: Sequence[str]
    text: str
    place: str


def load(
    of: Path | EndpointSettings | None,
    overrides: Sequence[str] = (),
    endpoint: str | None = None,
) -> Config:
    """The effective configuration `of` one endpoint: a file, of which `endpoint` names one if it
    has several, one of a fleet, or for None duesweep.toml, if that exists. `overrides` are
    `section.key=value` from the command line.

    Raises `ConfigError` for all settings of a wrong type or range, else for the first that
    contradicts others.
    """
    if not isinstance(of, EndpointSettings):
        of = only_one(of, settings_of([] if of is None else [of], endpoint))
    if of.error is not None:
        raise of.error
    content, parts = of.content, of.parts
    if parts:
        # All parts are of one file.
        content = _located(content, Config, parts[0].file.absolute().parent)
    faults: list[Problem] = []
    variables = _nest(_variables(content), "another variable", faults)
    options = _nest(_options(overrides), "another --set", faults)
    try:
        config = Config.model_validate(merged(merged(content, variables), options))
    except ValidationError as error:
        found = error.errors()
        lacks_file = (
            bool(of.label) and not parts and any(each["type"] == "missing" for each in found)
        )
        problems = problems_of(found, Places(parts, overrides))
        first = [_no_file(of.label)] if lacks_file else []
        raise _refusal([*first, *problems, *faults]) from error
    if faults:
        raise _refusal(faults)
    problem = first_problem(config)
    if problem is not None:
        # Each begins with the name of its setting.
        location = problem.text.partition(" ")[0].split(".")
        raise _refusal([placed(problem, Places(parts, overrides).of(location))])
    return config


def _located(content: Content, model: type[BaseModel], folder: Path) -> Content:
    """The content of a file in this folder, with relative paths that begin at the folder."""
    found = dict(content)
    for name, field in model.model_fields.items():
        value = content.get(name)
        marks = [mark for mark in field.metadata if isinstance(mark, InFile | InDsn)]
        if isinstance(value, str) and marks:
            found[name] = marks[0].located(value, folder)
        elif isinstance(value, Mapping) and is_section(field.annotation):
            found[name] = _located(value, field.annotation, folder)
        elif isinstance(value, Mapping) and model is Config and name == "queues":
            found[name] = {
                queue: _located(of, QueueConfig, folder) if isinstance(of, Mapping) else of
                for queue, of in value.items()
            }
    return found


def _no_file(name: str) -> Problem:
    return Problem(
        f"There is no {name} in {shorten(str(Path.cwd()))}",
        "write one, or name another file with --config",
    )


def _refusal(problems: Iterable[Problem]) -> ConfigError:
    """One error of all problems; of very many, the first."""
    first = [replace(one, text=shorten(one.text)) for one in islice(problems, _SHOWN + 1)]
    more = [Problem("and more")] if len(first) > _SHOWN else []
    return ConfigError.of([*first[:_SHOWN], *more])


def mask_secrets(config: Config) -> dict[str, Any]:
    """The configuration for people to read: every key, with secrets masked."""
    dumped: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    # Only the custom store knows which of its options are secret.
    dumped["store"]["options"] = dict.fromkeys(config.store.options, _MASK)
    return dumped


def _options(overrides: Sequence[str]) -> Iterator[_Given]:
    for override in overrides:
        path, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(
                f"--set {shown(repr(override))} is not of the form section.key=value",
                advice="write it as in --set sweep.batch_rows=500",
            )
        parts = path.strip().split(".")
        if len(parts) > _DEEPEST:
            raise ConfigError(
                f"--set {shorten(path)} has too many parts", advice="give it as section.key=value"
            )
        yield _Given(parts, value, f"--set {path.strip()}")


def _variables(content: Content) -> Iterator[_Given]:
    """The settings of the environment. Variables are not case-sensitive, so a connection is named
    as the file names it.
    """
    prefix, delimiter = ENVIRONMENT
    queues = content.get("queues")
    written = {name.lower(): name for name in queues} if isinstance(queues, Mapping) else {}
    meant = {
        variable.replace(delimiter, "_"): variable for variable in map(variable_of, settings())
    }
    spellings: dict[str, str] = {}
    for variable in sorted(os.environ):
        name = variable.upper()
        section, *keys = name.removeprefix(prefix).lower().split(delimiter)
        is_setting = name.startswith(prefix) and (keys or section in Config.model_fields)
        place = f"{variable} in the environment"
        if is_setting and section not in Config.model_fields:
            raise _refusal([placed(unknown_setting(".".join([section, *keys])), place)])
        likely = meant.get(name.replace(delimiter, "_"))
        if likely is not None and likely != name:
            raise ConfigError(
                f"{variable} is set in the environment", advice=f"did you mean {likely}?"
            )
        if not is_setting:
            continue
        if (first := spellings.setdefault(name, variable)) != variable:
            raise ConfigError(
                f"{first} and {place} are two spellings of one setting",
                advice=f"keep {name}, and unset the other",
            )
        if section == "queues" and keys:
            keys[0] = written.get(keys[0], keys[0])
        if len(keys) < _DEEPEST:
            yield _Given([section, *keys], os.environ[variable], place)


def _nest(given: Iterable[_Given], another: str, faults: list[Problem]) -> Content:
    """The settings as a file has them. Values of a wrong type go to `faults`."""
    nested: dict[str, Any] = {}
    for path, text, place in given:
        at = nested
        for section in path[:-1]:
            at = at.setdefault(section, {})
            if not isinstance(at, dict):
                raise ConfigError(
                    f"{place}: {another} gives {section} a value, so it is no section",
                    advice="remove one of the two",
                )
        try:
            at[path[-1]] = _typed(text, _field_of(path))
        except ValueError as error:
            faults.append(placed(Problem(f"{'.'.join(path)} is wrong: {error}"), place))
    return nested


def _field_of(path: Sequence[str]) -> FieldInfo | None:
    """The field of a setting; None for unknown ones, which a custom store may know."""
    model: Any = Config
    match path:
        case ["queues", _, key]:
            model = QueueConfig
        case [section, key] if section in Config.model_fields:
            model = Config.model_fields[section].annotation
        case [key]:
            pass
        case _:
            return None
    if not is_section(model):
        return None
    return {field.alias or name: field for name, field in model.model_fields.items()}.get(key)


def _typed(text: str, field: FieldInfo | None) -> object:
    """The value of a text in a field of its type. Raises `ValueError` if it has none."""
    kinds = set() if field is None else _kinds(field.annotation)
    if tuple in kinds and text.lstrip().startswith("["):
        return _list_in(text)
    if bool in kinds:
        if (key := text.strip().lower()) not in _BOOLEANS:
            raise ValueError(f"it is {shown(text)}, and must be true or false")
        return _BOOLEANS[key]
    if kinds & {int, float}:
        return _number_in(text, is_whole=float not in kinds)
    return text


def _kinds(annotation: Any) -> set[Any]:
    return {get_origin(kind) or kind for kind in (annotation, *get_args(annotation))}


def _list_in(text: str) -> object:
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except (ValueError, RecursionError) as error:
        raise ValueError('it is a list, as ["one", "two"], and cannot be read') from error


def _number_in(text: str, *, is_whole: bool) -> float:
    try:
        return int(text) if is_whole else float(text)
    except ValueError:
        if is_whole and _is_finite(text):
            raise ValueError("it must be a whole number, without a decimal point") from None
        kind = "a whole number" if is_whole else "a number"
        raise ValueError(f"it is {shown(text)}, and must be {kind}") from None


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
