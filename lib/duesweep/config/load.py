"""Reads a configuration: the environment overrides a TOML file, the command line overrides both.

Unknown keys are refused. Defaults are applied once, after merging.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from duesweep.config.file import content_of
from duesweep.config.model import ENVIRONMENT, Config
from duesweep.config.rules import (
    name_problem,
    queue_problem,
    retry_problem,
    route_problem,
    store_problem,
)
from duesweep.config.values import as_text
from duesweep.config.wording import problems_of, settings, unknown_setting, variable_of
from duesweep.errors import ConfigError, Problem

DEFAULT_FILE = Path("duesweep.toml")
# As pydantic masks.
_MASK = "**********"


def load(file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The effective configuration; `overrides` are `section.key=value` from the command line.

    Raises `ConfigError` for all settings of a wrong type or range, else for the first that
    contradicts others.
    """
    existing = _find_file(file)
    Config.content = content_of(existing) if existing else {}
    _refuse_unknown_variables()
    try:
        config = Config(**as_text(_nest(overrides)))
    except ValidationError as error:
        raise _refusal([*problems_of(error.errors())]) from error
    except SettingsError as error:
        raise _unreadable_section(str(error)) from error
    for rule in (name_problem, store_problem, queue_problem, route_problem, retry_problem):
        problem = rule(config)
        if problem is not None:
            raise _refusal([problem])
    return config


def _refusal(problems: Sequence[Problem]) -> ConfigError:
    """One error of all problems. Where there are several, each keeps its advice in the text."""
    if len(problems) == 1:
        return ConfigError(problems[0].text, advice=problems[0].advice)
    return ConfigError("; ".join(map(str, problems)))


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


def _find_file(file: Path | None) -> Path | None:
    if file is None:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    if not file.is_file():
        raise ConfigError(f"There is no configuration file {file}", advice="give one with --config")
    return file


def _nest(overrides: Sequence[str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for override in overrides:
        path, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(
                f"--set {override!r} is not of the form section.key=value",
                advice="write it as in --set sweep.batch_rows=500",
            )
        *sections, key = path.strip().split(".")
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
            unknown = unknown_setting(path)
            raise ConfigError(
                f"{variable} is set in the environment: {unknown.text}", advice=unknown.advice
            )
        likely = meant.get(variable.upper().replace(delimiter, "_"))
        if likely is not None and likely != variable.upper():
            raise ConfigError(
                f"{variable} is set in the environment", advice=f"did you mean {likely}?"
            )
