"""Reads a configuration: the environment overrides a TOML file, the command line overrides both.

Unknown keys are refused. Defaults are applied once, after merging.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from duesweep.config.file import content_of
from duesweep.config.fleet import Content, EndpointSettings, example_of, settings_of
from duesweep.config.model import ENVIRONMENT, Config
from duesweep.config.places import Part, Places, refuse_two_spellings
from duesweep.config.rules import first_problem
from duesweep.config.values import as_text
from duesweep.config.wording import (
    placed,
    problems_of,
    settings,
    unknown_setting,
    variable_of,
)
from duesweep.core.errors import ConfigError, Problem, shorten

DEFAULT_FILE = Path("duesweep.toml")
# As pydantic masks.
_MASK = "**********"
# So many problems are told at once.
_SHOWN = 20
# No setting has so many parts, and each nests the next.
_DEEPEST = 100


def load(of: Path | EndpointSettings | None, overrides: Sequence[str] = ()) -> Config:
    """The effective configuration `of` one endpoint: a file, one of a fleet, or for None
    duesweep.toml, if that exists. `overrides` are `section.key=value` from the command line.

    Raises `ConfigError` for all settings of a wrong type or range, else for the first that
    contradicts others.
    """
    content, parts = _content(of)
    Config.content.set(content)
    refuse_two_spellings()
    _refuse_unknown_variables()
    given = _nest(overrides)
    _refuse_unknown_sections(given)
    try:
        config = Config(**as_text(given))
    except ValidationError as error:
        found = error.errors()
        lacks_file = not parts and any(each["type"] == "missing" for each in found)
        problems = problems_of(found, Places(parts, overrides))
        raise _refusal([_no_file(), *problems] if lacks_file else problems) from error
    except SettingsError as error:
        raise _unreadable_section(str(error)) from error
    except RecursionError as error:
        raise ConfigError(
            "A variable of the environment, or a --set, is nested too deeply",
            advice="shorten the one that is much longer than the others",
        ) from error
    problem = first_problem(config)
    if problem is not None:
        # Each begins with the name of its setting.
        location = problem.text.partition(" ")[0].split(".")
        raise _refusal([placed(problem, Places(parts, overrides).of(location))])
    return config


def _no_file() -> Problem:
    return Problem(
        f"There is no {DEFAULT_FILE} in {shorten(str(Path.cwd()))}",
        "write one, or name another file with --config",
    )


def _refusal(problems: Iterable[Problem]) -> ConfigError:
    """One error of all problems; of very many, the first."""
    first = [replace(one, text=shorten(one.text)) for one in islice(problems, _SHOWN + 1)]
    more = [Problem("and more")] if len(first) > _SHOWN else []
    return ConfigError.of([*first[:_SHOWN], *more])


def _unreadable_section(text: str) -> ConfigError:
    """The error of an environment variable that stands for a whole section."""
    found = re.search(r'field "(\w+)"', text)
    section = found[1] if found else ""
    keys = [variable_of(path) for path in settings() if path.startswith(f"{section}.")]
    return ConfigError(
        f"{variable_of(section)} is set in the environment, but {section} is a section",
        advice=f"set each of its settings, as {', '.join(keys[:3]) or variable_of('section.key')}",
    )


def mask_secrets(config: Config) -> dict[str, Any]:
    """The configuration for people to read: every key, with secrets masked."""
    dumped: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    # Only the custom store knows which of its options are secret.
    dumped["store"]["options"] = dict.fromkeys(config.store.options, _MASK)
    return dumped


def _content(given: Path | EndpointSettings | None) -> tuple[Content, Sequence[Part]]:
    if isinstance(given, EndpointSettings):
        if given.error is not None:
            raise given.error
        return given.content, given.parts
    if given is None:
        if not DEFAULT_FILE.exists():
            return {}, ()
        return content_of(DEFAULT_FILE), (Part(DEFAULT_FILE),)
    found = settings_of([given])
    if len(found) > 1:
        raise ConfigError(
            f"{shorten(str(given))} has the settings of {len(found)} endpoints, and one is needed",
            advice=f"name it, as in {example_of(given, found)}",
        )
    return _content(found[0])


def _nest(overrides: Sequence[str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for override in overrides:
        path, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(
                f"--set {shorten(override)!r} is not of the form section.key=value",
                advice="write it as in --set sweep.batch_rows=500",
            )
        *sections, key = path.strip().split(".")
        if len(sections) > _DEEPEST:
            raise ConfigError(
                f"--set {shorten(path)} has too many parts", advice="give it as section.key=value"
            )
        at = nested
        for section in sections:
            at = at.setdefault(section, {})
            if not isinstance(at, dict):
                raise ConfigError(
                    f"--set {path}: another --set gives {section} a value, so it is no section",
                    advice="remove one of the two",
                )
        at[key] = value
    return nested


def _refuse_unknown_sections(given: Iterable[str]) -> None:
    # Pydantic has arguments of its own, as _env_file, and would take these for them.
    for section in given:
        if section not in Config.model_fields:
            raise _refusal([placed(unknown_setting(section), f"--set {section}")])


def _refuse_unknown_variables() -> None:
    # Pydantic refuses unknown keys of a section, but ignores variables of unknown sections.
    prefix, delimiter = ENVIRONMENT
    meant = {
        variable.replace(delimiter, "_"): variable for variable in map(variable_of, settings())
    }
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(prefix)
        section, separator, _ = name.partition(delimiter)
        is_ours = name != variable.upper() and separator
        if is_ours and section.lower() not in Config.model_fields:
            path = name.lower().replace(delimiter, ".")
            raise _refusal([placed(unknown_setting(path), f"{variable} in the environment")])
        likely = meant.get(variable.upper().replace(delimiter, "_"))
        if likely is not None and likely != variable.upper():
            raise ConfigError(
                f"{variable} is set in the environment", advice=f"did you mean {likely}?"
            )
