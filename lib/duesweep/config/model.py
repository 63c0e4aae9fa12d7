"""The effective configuration, and the sources that it comes from."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, ClassVar

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from duesweep.config.running import (
    BreakerConfig,
    LedgerConfig,
    MetricsConfig,
    RetryConfig,
    SloConfig,
    SweepConfig,
    TimeoutsConfig,
)
from duesweep.config.sections import LimitConfig, QueueConfig, RouteConfig, StoreConfig
from duesweep.config.values import as_text

# Prefix and delimiter: DUESWEEP_<SECTION>__<KEY>.
ENVIRONMENT = ("DUESWEEP_", "__")


class Config(BaseSettings):
    """The effective configuration. `content` is the parsed file of the next `Config` that this
    thread makes.
    """

    # A class variable is the only way to pass it to pydantic's sources.
    content: ClassVar[ContextVar[Mapping[str, Any]]] = ContextVar("content")

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT[0],
        env_nested_delimiter=ENVIRONMENT[1],
        extra="forbid",
        frozen=True,
        # An input may be a secret, and a stack trace shows pydantic's text.
        hide_input_in_errors=True,
    )

    store: StoreConfig
    queues: dict[str, QueueConfig] = Field(default_factory=dict)
    route: tuple[RouteConfig, ...] = ()
    limit: tuple[LimitConfig, ...] = ()
    retry: RetryConfig = RetryConfig()
    ledger: LedgerConfig
    sweep: SweepConfig = SweepConfig()
    breaker: BreakerConfig = BreakerConfig()
    timeouts: TimeoutsConfig = TimeoutsConfig()
    slo: SloConfig = SloConfig()
    metrics: MetricsConfig = MetricsConfig()

    @property
    def connections(self) -> Mapping[str, QueueConfig]:
        """The sections of queues; without any there is one, on the store's own server."""
        return self.queues or {"default": QueueConfig()}

    @classmethod
    def settings_customise_sources(  # noqa: PLR0917 - pydantic's signature
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The command line overrides the environment, which overrides the file."""
        content = cls.content.get({})
        given = _rename_as_in(content, env_settings())
        environment = InitSettingsSource(settings_cls, as_text(given))
        return init_settings, environment, InitSettingsSource(settings_cls, dict(content))


def _rename_as_in(content: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings from the environment, with connections named as in the file: variables are not
    case-sensitive, and pydantic makes their names lower-case.
    """
    sections, queues = content.get("queues"), given.get("queues")
    if not isinstance(sections, Mapping) or not isinstance(queues, Mapping):
        return given
    written = {name.lower(): name for name in sections}
    return given | {"queues": {written.get(name, name): each for name, each in queues.items()}}
