"""Configuration: a TOML file, above it the environment, above that the command line.

Nothing else in the package reads the environment. Unknown keys are refused, defaults are applied
once, after merging.
"""

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from duesweep.errors import ConfigError
from duesweep.policy import MAX_BATCH_ROWS
from duesweep.routing import PLACEHOLDERS
from duesweep.stores.values import TransactionMode

DEFAULT_FILE = Path("duesweep.toml")
# Prefix and delimiter: DUESWEEP_<SECTION>__<KEY>.
_ENVIRONMENT = ("DUESWEEP_", "__")
_STORE_KINDS = r"^(postgresql|sqlserver|msmq|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$"
DEFAULT_SCHEMAS = {"postgresql": "public", "sqlserver": "dbo"}
_JARS_VARIABLE = "DUESWEEP_JARS"
# One of these is set where the session is prepared: by spark-submit, or by spark-submit.sh.
_PREPARED_VARIABLES = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StoreConfig(_Section):
    """Where delayed messages wait. `options` are a brought store's own."""

    kind: str = Field(default="postgresql", pattern=_STORE_KINDS)
    dsn: SecretStr
    endpoint: str = Field(min_length=1)
    name: str | None = Field(default=None, min_length=1)
    db_schema: str | None = Field(default=None, alias="schema", min_length=1)
    delayed_table: str | None = Field(default=None, min_length=1)
    writer_time_zone: str | None = Field(default=None, min_length=1)
    jdbc_url: SecretStr | None = None
    number_of_retries: int | None = Field(default=None, ge=0, le=1_000)
    transaction_mode: TransactionMode | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def dialect(self) -> str:
        """The database's dialect: that of the queues beside the store, too."""
        return "sqlserver" if self.kind == "msmq" else self.kind

    @property
    def schema_name(self) -> str:
        """The schema of the endpoint's tables."""
        return self.db_schema or DEFAULT_SCHEMAS.get(self.dialect, "public")


class QueueConfig(_Section):
    """Where messages go; without a dsn, the store's own server and transaction. `kind` None is the
    store's own.
    """

    kind: Literal["postgresql", "sqlserver"] | None = None
    dsn: SecretStr | None = None
    db_schema: str | None = Field(default=None, alias="schema", min_length=1)


class RouteConfig(_Section):
    """Which destinations go to which connection, and what their queue is called there."""

    destination: str = Field(min_length=1)
    connection: str = Field(min_length=1)
    queue: str = Field(default="{queue}", min_length=1)

    @field_validator("queue")
    @classmethod
    def _known_placeholders(cls, template: str) -> str:
        unknown = set(re.findall(r"\{(\w*)\}", template)) - set(PLACEHOLDERS)
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(f"{{{min(unknown)}}} stands for nothing; there are {known}")
        return template


class RetryConfig(_Section):
    """What becomes of messages that fail."""

    max_attempts: int = Field(default=5, ge=1)
    initial_seconds: float = Field(default=30, ge=0, allow_inf_nan=False)
    max_seconds: float = Field(default=3600, ge=0, le=31_536_000)
    error_queue: str | None = Field(default=None, min_length=1)
    max_exhausted_per_sweep: int = Field(default=1000, ge=0)


class LedgerConfig(_Section):
    """Where the Delta ledger is."""

    root: str = Field(min_length=1)


class SweepConfig(_Section):
    """The size of a sweep's pieces."""

    batch_rows: int = Field(default=1000, ge=1, le=10_000)
    batch_bytes: int = Field(default=8_000_000, ge=1)
    slices: int = Field(default=0, ge=0, le=10_000)


class Config(BaseSettings):
    """The effective configuration."""

    model_config = SettingsConfigDict(
        env_prefix=_ENVIRONMENT[0],
        env_nested_delimiter=_ENVIRONMENT[1],
        extra="forbid",
        frozen=True,
    )

    store: StoreConfig
    queues: dict[str, QueueConfig] = Field(default_factory=dict)
    route: tuple[RouteConfig, ...] = ()
    retry: RetryConfig = RetryConfig()
    ledger: LedgerConfig
    sweep: SweepConfig = SweepConfig()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Command line over environment over file."""
        toml = TomlConfigSettingsSource(settings_cls, toml_file=_file_in_use)
        return init_settings, env_settings, toml


_file_in_use: Path | None = None


def load(file: Path | None, overrides: Sequence[str] = ()) -> Config:
    """The effective configuration; `overrides` are `section.key=value` from the command line.

    Raises `ConfigError` with one sentence for each thing that is wrong.
    """
    global _file_in_use  # noqa: PLW0603 - the only way to hand a path to pydantic's sources
    _file_in_use = _existing(file)
    _refuse_unknown_variables()
    try:
        config = Config(**_nested(overrides))
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(e) for e in error.errors())) from error
    except SettingsError as error:
        raise ConfigError(f"The environment cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{_file_in_use} is not TOML: {error}") from error
    for problem in (_store_problem(config), _route_problem(config)):
        if problem is not None:
            raise ConfigError(problem)
    return config


def masked(config: Config) -> dict[str, Any]:
    """The configuration for people to read: every key, secrets masked."""
    dumped: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    return dumped


def jars() -> Sequence[Path]:
    """The jars for a Spark session of our own, from the folder that spark-submit.sh filled.

    None where spark-submit has prepared a session: its master and its jars are what counts.
    """
    folder = os.environ.get(_JARS_VARIABLE)
    if folder is None or not _PREPARED_VARIABLES.isdisjoint(os.environ):
        return ()
    found = sorted(Path(folder).glob("*.jar"))
    if not found:
        raise ConfigError(
            f"{_JARS_VARIABLE} names {folder}, where there are no jars; run tests/run"
        )
    return found


def _store_problem(config: Config) -> str | None:
    store = config.store
    only_of = {
        "writer_time_zone": {"postgresql"},
        "number_of_retries": {"msmq"},
        "jdbc_url": {"sqlserver", "msmq"},
    }
    is_brought = ":" in store.kind
    for setting, kinds in only_of.items():
        if getattr(store, setting) is not None and store.kind not in kinds and not is_brought:
            return f"store.{setting} means nothing to a store of kind {store.kind}; leave it out"
    if store.options and not is_brought:
        return f"store.options means nothing to a store of kind {store.kind}; leave it out"
    if store.kind == "msmq" and "max_attempts" in config.retry.model_fields_set:
        return (
            "retry.max_attempts means nothing to a store of kind msmq, whose rows count their own "
            "retries: set store.number_of_retries, after which a message gets two more attempts"
        )
    if store.dialect == "sqlserver" and config.sweep.batch_rows > MAX_BATCH_ROWS:
        return (
            f"sweep.batch_rows is {config.sweep.batch_rows}; on SQL Server {MAX_BATCH_ROWS} are "
            "the most, since it locks the whole table where a statement takes 5,000 locks"
        )
    return None


def _route_problem(config: Config) -> str | None:
    used = {route.connection for route in config.route} if config.route else {"default"}
    unknown = sorted(used - set(config.queues)) if config.route else []
    if unknown:
        near = difflib.get_close_matches(unknown[0], config.queues, n=1)
        hint = f"did you mean {near[0]}?" if near else f"add a section [queues.{unknown[0]}]"
        return f"A [[route]] names the connection {unknown[0]}, which there is not; {hint}"
    unused = sorted(set(config.queues) - used)
    if unused:
        way = (
            "name it in a [[route]]" if config.route else "call it queues.default, or add [[route]]"
        )
        return f"queues.{unused[0]} is not used; {way}"
    return None


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


def _sentence(error: Mapping[str, Any]) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["loc"] == ("store", "kind"):
        return (
            f"store.kind is wrong: {error['input']!r} is none of postgresql, sqlserver and "
            "msmq, nor a store of your own as package.module:Class"
        )
    if error["type"] == "extra_forbidden":
        return _unknown(path)
    if error["type"] == "missing":
        variable = "DUESWEEP_" + path.upper().replace(".", "__")
        return f"{path} is not set; give it in the configuration file or as {variable}"
    return f"{path} is wrong: {error['msg'].lower()}"


def _refuse_unknown_variables() -> None:
    # Pydantic refuses unknown keys of a section, and passes over variables of unknown sections.
    prefix, delimiter = _ENVIRONMENT
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(prefix)
        section, separator, _ = name.partition(delimiter)
        is_ours = name != variable.upper() and separator
        if is_ours and section.lower() not in Config.model_fields:
            path = name.lower().replace(delimiter, ".")
            raise ConfigError(f"{variable} is set in the environment: {_unknown(path)}")


def _unknown(path: str) -> str:
    known = _known_keys()
    near = difflib.get_close_matches(path, known, n=1) or difflib.get_close_matches(
        path.rsplit(".", 1)[-1], [key.rsplit(".", 1)[-1] for key in known], n=1
    )
    return f"There is no setting {path}" + (f"; did you mean {near[0]}?" if near else "")


def _known_keys() -> Sequence[str]:
    sections = {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if name not in {"queues", "route"}
    } | {"queues.default": QueueConfig, "route": RouteConfig}
    keys = [
        f"{section}.{field.alias or name}"
        for section, model in sections.items()
        for name, field in model.model_fields.items()  # type: ignore[union-attr]
    ]
    return [*sections, *(re.sub("^queues$", "queues.default", key) for key in keys)]
