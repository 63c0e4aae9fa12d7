"""Every setting: its type, its bounds, its default, and its meaning."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, get_args

from annotated_types import MinLen
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

from duesweep.core.errors import is_utf8
from duesweep.core.policy import LedgerWriter, SweepEngine
from duesweep.core.routing import PLACEHOLDERS
from duesweep.drivers.dsn import begin_at, holds_password
from duesweep.drivers.servers import (
    DIALECTS,
    OF_A_USER,
    SERVERS,
    SQL_PERSISTENCE,
    STORE_KINDS,
    DatabaseServer,
    QueueKind,
    dialect_of,
)
from duesweep.drivers.urls import check_http, for_pika
from duesweep.stores.base import TransactionMode

# Prefix and delimiter: DUESWEEP_<SECTION>__<KEY>.
ENVIRONMENT = ("DUESWEEP_", "__")
# The databases count in 32 bits.
MOST = 2**31 - 1
_STORE_KINDS = rf"^({'|'.join(STORE_KINDS)}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$"
# Far more characters than a dsn with many servers has.
_LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class InFile:
    """Marks a setting that names a file or a folder: in a file of settings, a relative path begins
    at that file's folder. `or_name`: a text without a slash is something else.
    """

    or_name: bool = False

    def located(self, text: str, folder: Path) -> str:
        """The path from this folder, unless it is a URL, or one of the home folder."""
        is_other = not text.strip() or ":" in text or holds_password(text)
        is_rooted = text.startswith(("/", "~")) or (self.or_name and "/" not in text)
        return text if is_other or is_rooted else str(folder / text)


class InDsn:
    """Marks a dsn: the same holds for the files that it names."""

    def located(self, text: str, folder: Path) -> str:
        """The dsn with paths from this folder."""
        return begin_at(str(folder), text)


class Section(BaseModel):
    """Its settings: unknown ones are refused, and values of a wrong type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _readable(cls, value: Any, given: ValidationInfo) -> Any:
        field = cls.model_fields[str(given.field_name)]
        # It is a text of any form, which is not masked.
        is_shown = str in {field.annotation, *get_args(field.annotation)}
        values = value if isinstance(value, list) else [value]
        texts = [text for text in values if isinstance(text, str)]
        for text in texts:
            if len(text) > _LONGEST:
                raise ValueError(f"it has {len(text):,} characters, and may have {_LONGEST:,}")
            if "\0" in text:
                raise ValueError("it holds a NUL, the character with the number 0")
            if not is_utf8(text):
                raise ValueError("it is not UTF-8")
            if is_shown and holds_password(text):
                raise ValueError("it holds a password, and this setting is not kept secret")
        if any(isinstance(bound, MinLen) for bound in field.metadata) and not all(
            map(str.strip, texts)
        ):
            raise ValueError("it is empty")
        # A list of the file is frozen as all else is.
        return tuple(value) if isinstance(value, list) else value


def _list_of(text: Any, given: ValidationInfo) -> Any:
    """The list in a text of the environment or of the command line: it is written as in a file."""
    is_list = isinstance(text, str) and text.lstrip().startswith("[")
    if not given.context or not is_list:
        return text
    try:
        return tomllib.loads(f"list = {text}")["list"]
    except (ValueError, RecursionError) as error:
        raise ValueError('it is a list, as ["one", "two"], and cannot be read') from error


def _optional(description: str, *, alias: str | None = None) -> Any:
    """A setting that may be left out, but not be empty."""
    return Field(default=None, min_length=1, alias=alias, description=description)


class StoreConfig(Section):
    """The place where delayed messages wait. `options` are a custom store's own."""

    kind: str = Field(
        default=STORE_KINDS[0],
        pattern=_STORE_KINDS,
        description="`postgresql` or `sqlserver`: NServiceBus's transport; `msmq`: its delayed "
        "message store; `sql-persistence`: the old timeout manager's timeouts; or your own store "
        "as `package.module:Class`.",
    )
    dsn: Annotated[SecretStr, InDsn()] = Field(
        min_length=1,
        description="The store's database: a PostgreSQL URL or keywords, or an ODBC string for "
        "SQL Server; or the connection string of Npgsql or SqlClient. With a password, give it in "
        "the environment.",
    )
    endpoint: str = Field(
        min_length=1, description="The endpoint that the delayed messages belong to."
    )
    name: str | None = _optional(
        "The ledger's `source`, one for each store of a ledger. Default: database/schema.table."
    )
    db_schema: str | None = _optional(
        "The schema of the endpoint's tables and of addresses without one. Default: "
        "`public`, on SQL Server `dbo`.",
        alias="schema",
    )
    delayed_table: str | None = _optional(
        "Default: `<endpoint>.Delayed`; for `msmq`, `<endpoint>.delayed` or "
        "`.timeouts`, whichever exists."
    )
    # It may be empty: then SQL persistence names its table without a prefix.
    table_prefix: str | None = Field(
        default=None,
        description="The prefix of `<prefix>TimeoutData`; for `sql-persistence` only. Default: "
        "the endpoint with _ for its dots, and a _.",
    )
    writer_time_zone: str | None = _optional(
        "The time zone of the endpoint's sessions; PostgreSQL only. Default: detected."
    )
    jdbc_url: SecretStr | None = _optional(
        "For Spark's reads; SQL Server only. Default: derived from the dsn."
    )
    number_of_retries: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="The endpoint's setting; for `msmq` only, where it replaces "
        "`retry.max_attempts`. Default: 0.",
    )
    transaction_mode: TransactionMode | None = Field(
        default=None,
        strict=False,
        description="A sweep refuses to start if the queues do not allow this mode. Default: the "
        "strictest mode that they allow.",
    )
    # They may be secret; only the custom store knows which.
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="Options of a custom store; masked when the configuration is printed.",
    )

    @field_validator("dsn")
    @classmethod
    def _of_some_dialect(cls, dsn: SecretStr, given: ValidationInfo) -> SecretStr:
        is_decisive = given.data.get("kind") == SQL_PERSISTENCE
        if is_decisive and dialect_of(dsn.get_secret_value()) is None:
            raise ValueError(
                "it is neither an ODBC string, as Server=...;Database=..., nor a PostgreSQL dsn, "
                "as postgresql://... or host=... dbname=..."
            )
        return dsn

    @property
    def is_custom(self) -> bool:
        """Whether it is a custom store: a class that is not part of duesweep."""
        return ":" in self.kind

    @property
    def dialect(self) -> str:
        """The dialect of the database, and of queues in the same database."""
        if self.kind == SQL_PERSISTENCE:
            return str(dialect_of(self.dsn.get_secret_value()))
        return DIALECTS.get(self.kind, self.kind)

    @property
    def server(self) -> DatabaseServer:
        """The server of the database, as far as it is known."""
        return SERVERS.get(self.dialect, OF_A_USER)

    @property
    def knows_own_queue(self) -> bool:
        """Whether the endpoint's own queue is a table. On MSMQ it is not, and with SQL persistence
        the endpoint's transport is not known.
        """
        return self.kind not in {"msmq", SQL_PERSISTENCE}


class QueueConfig(Section):
    """A connection to queues. Without a dsn or url: the store's server, in the store's transaction.

    `kind` None is the kind of the store. The settings from `url` on are for RabbitMQ only.
    """

    kind: QueueKind | None = Field(
        default=None, description="Default: the kind of the store; a custom store needs it."
    )
    dsn: Annotated[SecretStr | None, InDsn()] = _optional(
        "Another database server, with at-least-once delivery. Default: the store's server, in "
        "the store's transaction."
    )
    db_schema: str | None = _optional(
        "The schema of addresses without one. Default: the schema of the store.", alias="schema"
    )
    readable_body: bool = Field(
        default=False,
        description="`setup` gives queue tables the column `BodyString`, which shows bodies as "
        "text.",
    )
    url: SecretStr | tuple[SecretStr, ...] | None = _optional(
        "RabbitMQ: `amqps://user:password@host:5671/vhost`, or NServiceBus's `host=…;username=…`, "
        "or a list of a cluster's nodes, tried in this order."
    )
    topology: Literal["conventional", "direct"] = Field(
        default="conventional",
        description="RabbitMQ: `conventional` has an exchange for each endpoint, `direct` only "
        "queues.",
    )
    ca_file: Annotated[str | None, InFile()] = _optional(
        "RabbitMQ: a file of trusted authorities. Default: the machine's authorities."
    )
    client_certificate: Annotated[str | None, InFile()] = _optional(
        "RabbitMQ: the sweeper's certificate."
    )
    client_key: Annotated[str | None, InFile()] = _optional(
        "RabbitMQ: the sweeper's key. Default: read from the certificate's file."
    )
    # AMQP counts messages in flight in 16 bits.
    max_in_flight: int = Field(
        default=2000,
        ge=1,
        le=65_535,
        description="RabbitMQ: unconfirmed messages of a task, at most.",
    )
    management_url: SecretStr | None = _optional(
        "RabbitMQ: for `rabbitmq delays verify` and the doctor. It takes user and password "
        "from `url`, if it has none."
    )

    _listed = field_validator("url", mode="before")(_list_of)

    @field_validator("url", "management_url")
    @classmethod
    def _that_can_be_read(cls, url: Any, given: ValidationInfo) -> Any:
        for each in url if isinstance(url, tuple) else (url,):
            if each is not None:
                check = for_pika if given.field_name == "url" else check_http
                check(each.get_secret_value())
        return url

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers' AMQP URLs, in the order in which they are tried."""
        given = self.url if isinstance(self.url, tuple) else (self.url,)
        return tuple(for_pika(url.get_secret_value()) for url in given if url is not None)


class RouteConfig(Section):
    """Which destinations go to which connection, and the name of their queue there."""

    destination: str = Field(
        min_length=1, description="A pattern of destinations: `*`, `?` and `[ab]` as in a shell."
    )
    connection: str = Field(
        min_length=1, description="The `[queues.…]` section for matching destinations."
    )
    queue: str = Field(
        default="{queue}",
        min_length=1,
        description="The queue's name there: `{queue}`, `{machine}` and `{destination}` are parts "
        "of the address.",
    )

    @field_validator("queue")
    @classmethod
    def _known_placeholders(cls, template: str) -> str:
        unknown = set(re.findall(r"\{(\w*)\}", template)) - set(PLACEHOLDERS)
        if unknown:
            known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
            raise ValueError(f"unknown placeholder {{{min(unknown)}}}; use {known}")
        return template


class LimitConfig(Section):
    """How many messages a second may go to the destinations that fit, all together."""

    destination: str = Field(
        min_length=1, description="A pattern of destinations that share the limit; `*` is any text."
    )
    # Below, a sweep that only waits would look like one that makes no progress.
    per_second: float = Field(
        ge=0.1,
        le=1_000_000,
        description="Messages a second from all sweeps of this store together.",
    )


class RetryConfig(Section):
    """Retries of messages that fail."""

    max_attempts: int = Field(
        default=5, ge=1, le=1_000_000, description="Attempts to deliver a message; not for `msmq`."
    )
    initial_seconds: float = Field(
        default=30,
        ge=0,
        le=31_536_000,
        description="Seconds until the second attempt, or up to a quarter less, at random; they "
        "double with each failure.",
    )
    max_seconds: float = Field(
        default=3600,
        ge=0,
        le=31_536_000,
        description="The longest time between two attempts, in seconds.",
    )
    error_queue: str | None = _optional("A queue that also receives exhausted messages.")
    max_exhausted_per_sweep: int = Field(
        default=1000,
        ge=0,
        le=MOST,
        description="Messages that a sweep exhausts, at most; it limits the damage of a wrong "
        "setting.",
    )


class LedgerConfig(Section):
    """The place of the Delta ledger, for how many days it keeps delivered messages (None: for
    ever), and for how many days old files, which readers of an earlier version may still need.
    """

    root: Annotated[str, InFile(or_name=True)] = Field(
        min_length=1,
        description="A folder or a URL (`s3a:`, `abfss:`, `dbfs:`); a name without a slash is a "
        "catalog schema.",
    )
    writer: LedgerWriter = Field(
        default=LedgerWriter.AUTO,
        strict=False,
        description="`auto`: delta-rs for a folder, `s3:`, `abfss:` and `gs:`, but on a "
        "cluster Spark; `delta-rs`; `spark` supports every place.",
    )
    keep_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="`maintain` removes older rows of `tombstones` and `sweeps`, in days. "
        "Default: it keeps all rows.",
    )
    vacuum_days: int = Field(
        default=7,
        ge=0,
        le=36_500,
        description="`maintain` deletes files that no version of these days needs; a shorter time "
        "can break running readers.",
    )


class SweepConfig(Section):
    """The size of batches and slices, from how many due messages on Spark works, and how far a
    sweep looks ahead, and to which destinations it may deliver.
    """

    batch_rows: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Messages in one transaction, at most. Default: PostgreSQL 2,000, else 1,000.",
    )
    batch_bytes: int = Field(
        default=8_000_000,
        ge=1,
        le=MOST,
        description="Bytes of headers and bodies in one transaction, at most.",
    )
    slices: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Spark tasks, each with at least one batch. 0: one for each core; on a cluster "
        "at least 32, and one for 25,000 messages. A sweep in process has at most two sessions.",
    )
    engine: SweepEngine = Field(
        default=SweepEngine.AUTO,
        strict=False,
        description="`auto`: Spark for `spark_from` messages or more, without Spark this process; "
        "`process`: always this process; `spark`: always Spark, without it exit code 2.",
    )
    spark_from: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description='`engine = "auto"` sweeps fewer due messages without Spark, unless a '
        "session of Spark is there. Default: 2,000,000; on a cluster or over Spark Connect "
        "200,000; from SQL Server 50,000.",
    )
    look_ahead_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="The time between two sweeps, in seconds: messages for RabbitMQ that fall due "
        "before the next sweep go to RabbitMQ's delayed delivery now.",
    )
    allow_destinations: tuple[str, ...] = Field(
        default=("*",),
        description="Patterns of allowed destinations; messages for other ones fail. The "
        "endpoint's own queue and the error queue are always allowed.",
    )

    _listed = field_validator("allow_destinations", mode="before")(_list_of)


class BreakerConfig(Section):
    """For how long, and how often, a sweep tries an unavailable service again."""

    trigger_seconds: float = Field(
        default=30,
        ge=0,
        le=600,
        description="Seconds for which a sweep tries an unavailable destination or service again, "
        "after the other messages; 0: not at all.",
    )
    recovery_failures_per_second: float = Field(
        default=1,
        ge=0.1,
        le=100,
        description="How many times a second a slice tries it again, at most.",
    )


class TimeoutsConfig(Section):
    """How long a service may take to answer."""

    # Below six seconds, a busy server would look like a silent one.
    silence_seconds: float = Field(
        default=60,
        ge=6,
        le=3600,
        description="A service that does not answer ends the sweep within this many seconds; a "
        "large plan may take 100 s more for each million messages.",
    )


class MetricsConfig(Section):
    """The targets of a run's metrics, for Prometheus. The URL may hold a user and a password."""

    textfile: Annotated[str | None, InFile()] = _optional(
        "A `.prom` file for node_exporter's collector; several configurations may share it."
    )
    pushgateway: SecretStr | None = _optional(
        "The Pushgateway's URL, which may contain a user and a password."
    )

    @field_validator("textfile")
    @classmethod
    def _that_is_collected(cls, path: str | None) -> str | None:
        if path is not None and not path.endswith(".prom"):
            raise ValueError("node_exporter reads only files whose names end in .prom")
        return path

    @field_validator("pushgateway")
    @classmethod
    def _over_http(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            check_http(url.get_secret_value())
        return url


class SloConfig(Section):
    """The objective: no message later than this many seconds; None: no objective."""

    lateness_seconds: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="A sweep that dispatches a message later than this, in seconds, ends with "
        "exit code 5. Default: no objective.",
    )


class Config(Section):
    """The effective configuration."""

    # An input may be a secret, and a stack trace shows pydantic's text.
    model_config = ConfigDict(hide_input_in_errors=True)

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

    _listed = field_validator("route", "limit", mode="before")(_list_of)

    @property
    def connections(self) -> Mapping[str, QueueConfig]:
        """The sections of queues; without any there is one, on the store's own server."""
        return self.queues or {"default": QueueConfig()}


# Sections that may be there several times.
LISTED: dict[str, type[BaseModel]] = {"route": RouteConfig, "limit": LimitConfig}


def variable_of(path: str) -> str:
    """The environment variable that gives a setting."""
    prefix, delimiter = ENVIRONMENT
    return prefix + path.upper().replace(".", delimiter)


def is_section(model: Any) -> TypeGuard[type[BaseModel]]:
    """Whether the type of a setting is a section."""
    return isinstance(model, type) and issubclass(model, BaseModel)


def settings(queue: str = "queues.default") -> Sequence[str]:
    """The names of all settings; a queue connection's under the section `queue`."""
    sections = {
        name: field.annotation
        for name, field in Config.model_fields.items()
        if name not in {"queues", *LISTED}
    } | {queue: QueueConfig, **LISTED}
    return [
        f"{section}.{field.alias or name}"
        for section, model in sections.items()
        if is_section(model)
        for name, field in model.model_fields.items()
    ]
