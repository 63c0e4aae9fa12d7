"""The sections of a configuration: each setting, its limits and its default."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from duesweep.config.dsn import dialect_of
from duesweep.config.ports import PROBLEM, has_bad_port
from duesweep.config.values import type_problem, without_marks
from duesweep.core.ledger_writer import LedgerWriter
from duesweep.core.routing import PLACEHOLDERS
from duesweep.stores.values import TransactionMode

DEFAULT_SCHEMAS = {"postgresql": "public", "sqlserver": "dbo"}
_SQL_PERSISTENCE = "sql-persistence"
_STORE_KINDS = rf"^(postgresql|sqlserver|msmq|{_SQL_PERSISTENCE}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$"

_HTTP = re.compile(r"https?://(?:[^@/]*@)?[^@/:?#]")

# The databases count these in 32 bits.
_MOST = 2**31 - 1


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _of_its_type(cls, value: Any, given: ValidationInfo) -> Any:
        # Pydantic accepts true as 1, and text as a number whatever source it comes from.
        problem = type_problem(value, cls.model_fields[str(given.field_name)])
        if problem is not None:
            raise ValueError(problem)
        return without_marks(value) if given.field_name == "options" else value


def _check_port(dsn: SecretStr | None) -> SecretStr | None:
    if dsn is not None and has_bad_port(dsn.get_secret_value()):
        raise ValueError(PROBLEM)
    return dsn


class StoreConfig(_Section):
    """Where delayed messages wait. `options` are a custom store's own."""

    kind: str = Field(default="postgresql", pattern=_STORE_KINDS)
    dsn: SecretStr = Field(min_length=1)
    endpoint: str = Field(min_length=1)
    name: str | None = Field(default=None, min_length=1)
    db_schema: str | None = Field(default=None, alias="schema", min_length=1)
    delayed_table: str | None = Field(default=None, min_length=1)
    # It may be empty: then SQL persistence names its table without a prefix.
    table_prefix: str | None = None
    writer_time_zone: str | None = Field(default=None, min_length=1)
    jdbc_url: SecretStr | None = Field(default=None, min_length=1)
    number_of_retries: int | None = Field(default=None, ge=0, le=1_000)
    transaction_mode: TransactionMode | None = None
    # They may be secret; only the custom store knows which.
    options: dict[str, Any] = Field(default_factory=dict, repr=False)

    @field_validator("dsn")
    @classmethod
    def _of_some_dialect(cls, dsn: SecretStr, given: ValidationInfo) -> SecretStr:
        is_decisive = given.data.get("kind") == _SQL_PERSISTENCE
        if is_decisive and dialect_of(dsn.get_secret_value()) is None:
            raise ValueError(
                "it is neither an ODBC string, as Server=...;Database=..., nor a PostgreSQL dsn, "
                "as postgresql://... or host=... dbname=..."
            )
        return dsn

    @field_validator("dsn", "jdbc_url")
    @classmethod
    def _with_possible_ports(cls, dsn: SecretStr | None, given: ValidationInfo) -> Any:
        # The dsn of a custom store may have any form.
        return dsn if ":" in given.data.get("kind", "") else _check_port(dsn)

    @property
    def is_custom(self) -> bool:
        """Whether it is a custom store: a class that is not part of duesweep."""
        return ":" in self.kind

    @property
    def dialect(self) -> str:
        """The dialect of the database, and of queues in the same database."""
        if self.kind == _SQL_PERSISTENCE:
            return str(dialect_of(self.dsn.get_secret_value()))
        return "sqlserver" if self.kind == "msmq" else self.kind

    @property
    def knows_own_queue(self) -> bool:
        """Whether the endpoint's own queue is a table. On MSMQ it is not, and with SQL persistence
        the endpoint's transport is not known.
        """
        return self.kind not in {"msmq", _SQL_PERSISTENCE}

    @property
    def schema_name(self) -> str:
        """The schema of the endpoint's tables."""
        return self.db_schema or DEFAULT_SCHEMAS.get(self.dialect, "public")


class QueueConfig(_Section):
    """Where messages go. Without a dsn or url: the store's server, in the store's transaction.

    `kind` None is the kind of the store. The settings from `url` on are for RabbitMQ only.
    """

    kind: Literal["postgresql", "sqlserver", "rabbitmq"] | None = None
    dsn: SecretStr | None = Field(default=None, min_length=1)
    db_schema: str | None = Field(default=None, alias="schema", min_length=1)
    readable_body: bool = False
    url: SecretStr | tuple[SecretStr, ...] | None = Field(default=None, min_length=1)
    topology: Literal["conventional", "direct"] = "conventional"
    ca_file: str | None = Field(default=None, min_length=1)
    client_certificate: str | None = Field(default=None, min_length=1)
    client_key: str | None = Field(default=None, min_length=1)
    # AMQP counts messages in flight in 16 bits.
    max_in_flight: int = Field(default=2000, ge=1, le=65_535)
    management_url: SecretStr | None = Field(default=None, min_length=1)

    @field_validator("dsn", "url", "management_url")
    @classmethod
    def _with_possible_ports(cls, dsn: Any) -> Any:
        return tuple(map(_check_port, dsn)) if isinstance(dsn, tuple) else _check_port(dsn)

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers' URLs, in the order in which they are tried."""
        given = self.url if isinstance(self.url, tuple) else (self.url,)
        return tuple(url.get_secret_value() for url in given if url is not None)


class RouteConfig(_Section):
    """Which destinations go to which connection, and the name of their queue there."""

    destination: str = Field(min_length=1)
    connection: str = Field(min_length=1)
    queue: str = Field(default="{queue}", min_length=1)

    @field_validator("queue")
    @classmethod
    def _known_placeholders(cls, template: str) -> str:
        unknown = set(re.findall(r"\{(\w*)\}", template)) - set(PLACEHOLDERS)
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(f"unknown placeholder {{{min(unknown)}}}; use {known}")
        return template


class LimitConfig(_Section):
    """How many messages a second may go to the destinations that fit, all together."""

    destination: str = Field(min_length=1)
    # Below, a sweep that only waits would look like one that makes no progress.
    per_second: float = Field(ge=0.1, le=1_000_000)


class RetryConfig(_Section):
    """Retries of messages that fail."""

    max_attempts: int = Field(default=5, ge=1, le=1_000_000)
    initial_seconds: float = Field(default=30, ge=0, le=31_536_000)
    max_seconds: float = Field(default=3600, ge=0, le=31_536_000)
    error_queue: str | None = Field(default=None, min_length=1)
    max_exhausted_per_sweep: int = Field(default=1000, ge=0, le=_MOST)


class LedgerConfig(_Section):
    """Where the Delta ledger is, for how many days it keeps what was delivered (None: for ever),
    and for how many days old files, which readers of an earlier version may still need.
    """

    root: str = Field(min_length=1)
    writer: LedgerWriter = LedgerWriter.AUTO
    keep_days: int | None = Field(default=None, ge=1, le=36_500)
    vacuum_days: int = Field(default=7, ge=0, le=36_500)


class SweepConfig(_Section):
    """The size of batches and slices, from how many due messages on Spark works, and how far a
    sweep looks ahead, and to which destinations it may deliver.
    """

    batch_rows: int | None = Field(default=None, ge=1, le=10_000)
    batch_bytes: int = Field(default=8_000_000, ge=1, le=_MOST)
    slices: int = Field(default=0, ge=0, le=10_000)
    spark_from: int = Field(default=50_000, ge=0, le=_MOST)
    look_ahead_seconds: int = Field(default=0, ge=0, le=86_400)
    allow_destinations: tuple[str, ...] = ("*",)


class BreakerConfig(_Section):
    """For how long, and how often, a slice tries again what takes nothing."""

    trigger_seconds: float = Field(default=30, ge=0, le=600)
    recovery_failures_per_second: float = Field(default=1, ge=0.1, le=100)


class TimeoutsConfig(_Section):
    """How long a service may take to answer."""

    # Below six seconds, a busy server would look like a silent one.
    silence_seconds: float = Field(default=60, ge=6, le=3600)


class MetricsConfig(_Section):
    """Where a run's metrics go, for Prometheus. The URL may hold a user and a password."""

    textfile: str | None = Field(default=None, min_length=1)
    pushgateway: SecretStr | None = Field(default=None, min_length=1)

    @field_validator("textfile")
    @classmethod
    def _that_is_collected(cls, path: str | None) -> str | None:
        if path is not None and not path.endswith(".prom"):
            raise ValueError("node_exporter reads only files whose names end in .prom")
        return path

    @field_validator("pushgateway")
    @classmethod
    def _over_http(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not _HTTP.match(url.get_secret_value()):
            raise ValueError("it must begin with http:// or https://, and name a host")
        return _check_port(url)


class SloConfig(_Section):
    """What a sweep is to achieve: no message later than so many seconds; None: no objective."""

    lateness_seconds: float | None = Field(default=None, gt=0, le=31_536_000)
