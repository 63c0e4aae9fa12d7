"""Reading a configuration: a TOML file, above it the environment, above that the command line.

Unknown keys are refused, defaults are applied once, after merging.
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
from duesweep.config.wording import sentences_of, settings, unknown_setting, variable_of
from duesweep.errors import ConfigError

DEFAULT_FILE = Path("duesweep.toml")
# As pydantic masks.
_MASK = "**********"


def load(file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The effective configuration; `overrides` are `section.key=value` from the command line.

    Raises `ConfigError` with one sentence for each thing that is wrong.
    """
    existing = _existing(file)
    Config.content = content_of(existing) if existing else {}
    _refuse_unknown_variables()
    try:
        config = Config(**as_text(_nested(overrides)))
    except ValidationError as error:
        raise ConfigError("; ".join(sentences_of(error.errors()))) from error
    except SettingsError as error:
        raise ConfigError(_unreadable_section(str(error))) from error
    for rule in (name_problem, store_problem, queue_problem, route_problem, retry_problem):
        problem = rule(config)
        if problem is not None:
            raise ConfigError(problem)
    return config


def _unreadable_section(text: str) -> str:
    """What is wrong with a variable that stands for a whole section."""
    found = re.search(r'field "(\w+)"', text)
    section = found[1] if found else ""
    keys = [variable_of(path) for path in settings() if path.startswith(f"{section}.")]
    return (
        f"{variable_of(section)} is set in the environment, but {section} is a section; set its "
        f"settings one by one, as {', '.join(keys[:3]) or variable_of('section.key')}"
    )


def masked(config: Config) -> dict[str, Any]:
    """The configuration for people to read: every key, secrets masked."""
    dumped: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    # Which of them are secret only the store knows that takes them.
    dumped["store"]["options"] = dict.fromkeys(config.store.options, _MASK)
    return dumped


def _existing(file: Path | None) -> Path | None:
    if file is None:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    if not file.is_file():
        raise ConfigError(f"There is no configuration file {file}; give one with --config")
    return file


def _nested(overrides: Sequence[str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for override in overrides:
        path, separator, value = override.partition("=")
        if not separator:
            raise ConfigError(f"--set {override!r} is not of the form section.key=value")
        *sections, key = path.strip().split(".")
        at = nested
        for section in sections:
            at = at.setdefault(section, {})
            if not isinstance(at, dict):
                raise ConfigError(f"--set {path}: {section} was given a value, and is no section")
        at[key] = value
    return nested


def _refuse_unknown_variables() -> None:
    # Pydantic refuses unknown keys of a section, and ignores variables of unknown sections.
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
            raise ConfigError(f"{variable} is set in the environment: {unknown_setting(path)}")
        likely = meant.get(variable.upper().replace(delimiter, "_"))
        if likely is not None and likely != variable.upper():
            raise ConfigError(f"{variable} is set in the environment; did you mean {likely}?")
