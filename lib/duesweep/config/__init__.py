"""Settings, and facts of the environment that are no settings."""

from duesweep.config.environment import (
    STARTED,
    has_cluster_files,
    has_prepared_session,
    has_pyspark,
    has_spark_of_its_own,
    otlp_settings,
    spark_start,
    would_start_spark,
)
from duesweep.config.files import EndpointSettings, settings_of
from duesweep.config.load import load, mask_secrets
from duesweep.config.model import (
    Config,
    LimitConfig,
    MetricsConfig,
    QueueConfig,
    RouteConfig,
)
from duesweep.config.rules import route_notice
from duesweep.drivers.dsn import holds_password

__all__ = [
    "STARTED",
    "Config",
    "EndpointSettings",
    "LimitConfig",
    "MetricsConfig",
    "QueueConfig",
    "RouteConfig",
    "has_cluster_files",
    "has_prepared_session",
    "has_pyspark",
    "has_spark_of_its_own",
    "holds_password",
    "load",
    "mask_secrets",
    "otlp_settings",
    "route_notice",
    "settings_of",
    "spark_start",
    "would_start_spark",
]
