"""How sweeps run, in a configuration: each setting, its bounds and its default."""

import re

from pydantic import Field, SecretStr, field_validator

from duesweep.config.section import MOST, Section, check_port
from duesweep.core.policy import LedgerWriter

_HTTP = re.compile(r"https?://(?:[^@/]*@)?[^@/:?#]")


class RetryConfig(Section):
    """Retries of messages that fail."""

    max_attempts: int = Field(
        default=5, ge=1, le=1_000_000, description="Attempts to deliver a message; not for `msmq`."
    )
    initial_seconds: float = Field(
        default=30,
        ge=0,
        le=31_536_000,
        description="Seconds until the second attempt; they double with each failure.",
    )
    max_seconds: float = Field(
        default=3600,
        ge=0,
        le=31_536_000,
        description="The longest time between two attempts, in seconds; up to a quarter less, at "
        "random.",
    )
    error_queue: str | None = Field(
        default=None, min_length=1, description="Exhausted messages go there, too."
    )
    max_exhausted_per_sweep: int = Field(
        default=1000,
        ge=0,
        le=MOST,
        description="Messages that a sweep exhausts at the most: what a wrong setting can cost.",
    )


class LedgerConfig(Section):
    """Where the Delta ledger is, for how many days it keeps what was delivered (None: for ever),
    and for how many days old files, which readers of an earlier version may still need.
    """

    root: str = Field(
        min_length=1,
        description="A folder or a URL (`s3a:`, `abfss:`, `dbfs:`); without a slash it is a "
        "catalog schema.",
    )
    writer: LedgerWriter = Field(
        default=LedgerWriter.AUTO,
        description="`auto`: delta-rs for a local folder, else Spark; `delta-rs` takes `s3:`, "
        "`abfss:` and `gs:` as well, `spark` everything.",
    )
    keep_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="`maintain` removes rows of `tombstones` and `sweeps` that are older, in "
        "days. Default: it keeps all.",
    )
    vacuum_days: int = Field(
        default=7,
        ge=0,
        le=36_500,
        description="`maintain` deletes files that no version of these days needs; fewer days can "
        "break who is reading.",
    )


class SweepConfig(Section):
    """The size of batches and slices, from how many due messages on Spark works, and how far a
    sweep looks ahead, and to which destinations it may deliver.
    """

    batch_rows: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Messages in one transaction at the most. Default: 2,000, from SQL Server "
        "1,000.",
    )
    batch_bytes: int = Field(
        default=8_000_000,
        ge=1,
        le=MOST,
        description="Bytes of headers and bodies in one transaction, at the most.",
    )
    slices: int = Field(
        default=0,
        ge=0,
        le=10_000,
        description="Spark tasks; fewer where there is less than a batch for each. 0: one for "
        "each core. In process two at most.",
    )
    spark_from: int | None = Field(
        default=None,
        ge=0,
        le=MOST,
        description="Fewer due messages than this are swept without Java; 0: always on Spark. "
        "Default: 200,000, from SQL Server 50,000.",
    )
    look_ahead_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="The time between two sweeps, in seconds: what comes due before the next one, "
        "and goes to RabbitMQ, is handed to its delayed delivery now.",
    )
    allow_destinations: tuple[str, ...] = Field(
        default=("*",),
        description="What fits none of them fails; the endpoint's own queue and the error queue "
        "are always allowed.",
    )


class BreakerConfig(Section):
    """For how long, and how often, a slice tries again what takes nothing."""

    trigger_seconds: float = Field(
        default=30,
        ge=0,
        le=600,
        description="Seconds for which a sweep waits for what takes nothing, once it has done the "
        "rest; 0: not at all.",
    )
    recovery_failures_per_second: float = Field(
        default=1,
        ge=0.1,
        le=100,
        description="How often a slice tries it in vain meanwhile, at the most.",
    )


class TimeoutsConfig(Section):
    """How long a service may take to answer."""

    # Below six seconds, a busy server would look like a silent one.
    silence_seconds: float = Field(
        default=60,
        ge=6,
        le=3600,
        description="A service that never answers ends the sweep within so many seconds; a plan "
        "of many messages may take 100 s more for each million.",
    )


class MetricsConfig(Section):
    """Where a run's metrics go, for Prometheus. The URL may hold a user and a password."""

    textfile: str | None = Field(
        default=None,
        min_length=1,
        description="A `.prom` file for node_exporter's collector, one for each configuration.",
    )
    pushgateway: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="The Pushgateway's URL, which may hold a user and a password.",
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
        if url is not None and not _HTTP.match(url.get_secret_value()):
            raise ValueError("it must begin with http:// or https://, and name a host")
        return check_port(url)


class SloConfig(Section):
    """What a sweep is to achieve: no message later than so many seconds; None: no objective."""

    lateness_seconds: float | None = Field(
        default=None,
        gt=0,
        le=31_536_000,
        description="A sweep that dispatches a message later than this, in seconds, ends with "
        "exit code 5. Default: no objective.",
    )
