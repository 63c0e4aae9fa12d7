"""Reads a configuration: the environment overrides a TOML file, the command line overrides both.

Unknown keys are refused. Defaults are applied once, after merging.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from duesweep.config.files import (
    Content,
    EndpointSettings,
    Location,
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
    content = of.content
    if of.file is not None:
        content = _located(content, Config, of.file.absolute().parent)
    places = Places(of)
    variables = _nest(_variables(content), "another variable", places)
    options = _nest(_options(overrides), "another --set", places)
    config = _checked(merged(merged(content, variables), options), places)
    problem = first_problem(config)
    if problem is not None:
        # Each begins with the name of its setting.
        location = problem.text.partition(" ")[0].split(".")
        raise _refusal([placed(problem, places.of(location))])
    return config


def _checked(content: Content, places: Places) -> Config:
    """The configuration with this content. Pydantic reads texts of the environment and of the
    command line as values of their setting's type; a file's values have to be of that type.

    Raises `ConfigError` for all wrong settings.
    """
    found: dict[Location, Any] = {}
    config = cause = None
    try:
        config = Config.model_validate(content, strict=False, context=places.texts)
    except ValidationError as error:
        cause, found = error, {each["loc"]: each for each in error.errors()}
    try:
        # As the sections say, which is strict.
        Config.model_validate(content)
    except ValidationError as error:
        of_files = (each for each in error.errors() if not places.is_text(each["loc"]))
        cause, found = error, found | {each["loc"]: each for each in of_files}
    if config is not None and not found:
        return config
    label, file = places.settings.label, places.settings.file
    is_incomplete = any(each["type"] == "missing" for each in found.values())
    first: list[Problem] = []
    if label and file is None and is_incomplete:
        try:
            folder = shorten(str(Path.cwd()))
        except FileNotFoundError:
            folder = "the working folder, which was deleted"
        no_file = f"There is no {label} in {folder}"
        first.append(Problem(no_file, "write one, or name another file with --config"))
    # Not a list: to find the line of each of very many would take minutes.
    raise _refusal(chain(first, problems_of(found.values(), places))) from cause


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


def _refusal(problems: Iterable[Problem]) -> ConfigError:
    """One error of all problems; of very many, the first."""
    first = [replace(one, text=shorten(one.text)) for one in islice(problems, _SHOWN + 1)]
    more = [Problem("and more")] if len(first) > _SHOWN else []
    return ConfigError.of_all([*first[:_SHOWN], *more])


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


def _nest(given: Iterable[_Given], another: str, places: Places) -> Content:
    """The settings as a file has them; notes their places."""
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
        at[path[-1]] = text
        places.texts[tuple(path)] = place
    return nested
