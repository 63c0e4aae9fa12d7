"""The configuration, as Python gives it."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from duesweep import config as configuration
from duesweep.config import Config


def load_config(
    file: str | PathLike[str] | None = None, overrides: Mapping[str, object] | None = None
) -> Config:
    """The configuration of a TOML file, by default `duesweep.toml` if it is there. The environment
    overrides it, and `overrides` as in `{"sweep.batch_rows": 500}` override both.

    Raises `ConfigError` for what is wrong with it.
    """
    given = [f"{name}={_text(value)}" for name, value in (overrides or {}).items()]
    return configuration.load(None if file is None else Path(file), given)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
