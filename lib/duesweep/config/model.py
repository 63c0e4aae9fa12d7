"""The effective configuration, and the sources that it comes from."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
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
from duesweep.config.values import as_text

# Prefix and delimiter: DUESWEEP_<SECTION>__<KEY>.
ENVIRONMENT = ("DUESWEEP_", "__")


class Config(BaseSettings):
    """The effective configuration. `content` is what the next one's file says."""

    # The only way to hand it to pydantic's sources.
    content: ClassVar[Mapping[str, Any]] = {}

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
        given = _named_as_in(cls.content, env_settings())
        environment = InitSettingsSource(settings_cls, as_text(given))
        return init_settings, environment, InitSettingsSource(settings_cls, dict(cls.content))


def _named_as_in(content: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the environment gives, its connections named as the file writes them: variables know no
    case, and pydantic makes their names small.
    """
    sections, queues = content.get("queues"), given.get("queues")
    if not isinstance(sections, Mapping) or not isinstance(queues, Mapping):
        return given
    written = {name.lower(): name for name in sections}
    return given | {"queues": {written.get(name, name): each for name, each in queues.items()}}
