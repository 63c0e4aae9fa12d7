"""Stores, queues, routes and limits of a configuration: each setting, its bounds, its default."""

import re
from typing import Any, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from duesweep.config.dsn import dialect_of
from duesweep.config.section import Section, check_port
from duesweep.core.routing import PLACEHOLDERS
from duesweep.stores.base import TransactionMode

DEFAULT_SCHEMAS = {"postgresql": "public", "sqlserver": "dbo"}
_SQL_PERSISTENCE = "sql-persistence"
_STORE_KINDS = rf"^(postgresql|sqlserver|msmq|{_SQL_PERSISTENCE}|[A-Za-z_][\w.]*:[A-Za-z_]\w*)$"


class StoreConfig(Section):
    """Where delayed messages wait. `options` are a custom store's own."""

    kind: str = Field(
        default="postgresql",
        pattern=_STORE_KINDS,
        description="`postgresql` or `sqlserver`: NServiceBus's transport; `msmq`: its delayed "
        "message store; `sql-persistence`: the old timeout manager's timeouts; or your own store "
        "as `package.module:Class`.",
    )
    dsn: SecretStr = Field(
        min_length=1,
        description="Where the store is: a PostgreSQL URL or keywords, on SQL Server an ODBC "
        "string. With a password, give it in the environment.",
    )
    endpoint: str = Field(min_length=1, description="Whose delayed messages.")
    name: str | None = Field(
        default=None,
        min_length=1,
        description="The ledger's `source`, one for each store of a ledger. Default: "
        "database/schema.table.",
    )
    db_schema: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        description="The schema of the endpoint's tables and of addresses without one. Default: "
        "`public`, on SQL Server `dbo`.",
    )
    delayed_table: str | None = Field(
        default=None,
        min_length=1,
        description="Default: `<endpoint>.Delayed`; for `msmq`, `<endpoint>.delayed` or "
        "`.timeouts`, whichever exists.",
    )
    # It may be empty: then SQL persistence names its table without a prefix.
    table_prefix: str | None = Field(
        default=None,
        description="Of `<prefix>TimeoutData`; for `sql-persistence` only. Default: the endpoint "
        "with _ for its dots, and a _.",
    )
    writer_time_zone: str | None = Field(
        default=None,
        min_length=1,
        description="The time zone of the endpoint's sessions; PostgreSQL only. Default: found "
        "out.",
    )
    jdbc_url: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="For Spark's reads; SQL Server only. Default: made from the dsn.",
    )
    number_of_retries: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="As in the endpoint; for `msmq` only, where it replaces `retry.max_attempts`. "
        "Default: 0.",
    )
    transaction_mode: TransactionMode | None = Field(
        default=None,
        description="Refuse to start where the queues do not allow it. Default: the most that "
        "they allow.",
    )
    # They may be secret; only the custom store knows which.
    options: dict[str, Any] = Field(
        default_factory=dict,
        repr=False,
        description="What a store of your own takes; masked when the configuration is printed.",
    )

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
        return dsn if ":" in given.data.get("kind", "") else check_port(dsn)

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


class QueueConfig(Section):
    """Where messages go. Without a dsn or url: the store's server, in the store's transaction.

    `kind` None is the kind of the store. The settings from `url` on are for RabbitMQ only.
    """

    kind: Literal["postgresql", "sqlserver", "rabbitmq"] | None = Field(
        default=None, description="Default: as the store; a store of your own needs it."
    )
    dsn: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Another database server: messages arrive at least once there. Default: the "
        "store's, in its transaction.",
    )
    db_schema: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        description="Of addresses without one. Default: as the store's.",
    )
    readable_body: bool = Field(
        default=False,
        description="`setup` gives queue tables the column `BodyString`: bodies as text, for "
        "people.",
    )
    url: SecretStr | tuple[SecretStr, ...] | None = Field(
        default=None,
        min_length=1,
        description="RabbitMQ: `amqps://user:password@host:5671/vhost`, or a list of a cluster's "
        "nodes, tried in its order.",
    )
    topology: Literal["conventional", "direct"] = Field(
        default="conventional",
        description="RabbitMQ: `conventional` has an exchange for each endpoint, `direct` queues "
        "alone.",
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="RabbitMQ: authorities to trust. Default: the machine's.",
    )
    client_certificate: str | None = Field(
        default=None, min_length=1, description="RabbitMQ: the sweeper's own certificate."
    )
    client_key: str | None = Field(
        default=None,
        min_length=1,
        description="RabbitMQ: the key. Default: in the certificate's file.",
    )
    # AMQP counts messages in flight in 16 bits.
    max_in_flight: int = Field(
        default=2000,
        ge=1,
        le=65_535,
        description="RabbitMQ: messages of a task that the broker has not confirmed yet.",
    )
    management_url: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="RabbitMQ: for `rabbitmq delays verify` and the doctor; user and password as "
        "in `url`, if it has none.",
    )

    @field_validator("dsn", "url", "management_url")
    @classmethod
    def _with_possible_ports(cls, dsn: Any) -> Any:
        return tuple(map(check_port, dsn)) if isinstance(dsn, tuple) else check_port(dsn)

    @property
    def urls(self) -> tuple[str, ...]:
        """The brokers' URLs, in the order in which they are tried."""
        given = self.url if isinstance(self.url, tuple) else (self.url,)
        return tuple(url.get_secret_value() for url in given if url is not None)


class RouteConfig(Section):
    """Which destinations go to which connection, and the name of their queue there."""

    destination: str = Field(
        min_length=1, description="Destinations that fit: `*`, `?` and `[ab]` as in a shell."
    )
    connection: str = Field(min_length=1, description="The `[queues.…]` section that they go to.")
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
        min_length=1, description="Destinations that fit, and share the limit; `*` is any text."
    )
    # Below, a sweep that only waits would look like one that makes no progress.
    per_second: float = Field(
        ge=0.1,
        le=1_000_000,
        description="Messages a second, from all sweeps of this store together.",
    )
