"""The effective configuration, and the sources that it comes from."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from duesweep.config.sections import (
    LedgerConfig,
    QueueConfig,
    RetryConfig,
    RouteConfig,
    StoreConfig,
    SweepConfig,
    TimeoutsConfig,
)

# Prefix and delimiter: DUESWEEP_<SECTION>__<KEY>.
ENVIRONMENT = ("DUESWEEP_", "__")


class Config(BaseSettings):
    """The effective configuration. `file` is what the next one is read from."""

    # The only way to hand a path to pydantic's sources.
    file: ClassVar[Path | None] = None

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT[0],
        env_nested_delimiter=ENVIRONMENT[1],
        extra="forbid",
        frozen=True,
    )

    store: StoreConfig
    queues: dict[str, QueueConfig] = Field(default_factory=dict)
    route: tuple[RouteConfig, ...] = ()
    retry: RetryConfig = RetryConfig()
    ledger: LedgerConfig
    sweep: SweepConfig = SweepConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()

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
        toml = TomlConfigSettingsSource(settings_cls, toml_file=Config.file)
        return init_settings, env_settings, toml
