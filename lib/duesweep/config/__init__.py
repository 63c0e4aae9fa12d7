"""Configuration. No other part of the package reads the environment."""

from duesweep.config.dsn import holds_password
from duesweep.config.fleet import EndpointSettings, settings_of
from duesweep.config.load import load, mask_secrets
from duesweep.config.model import Config
from duesweep.config.rules import route_notice
from duesweep.config.running import MetricsConfig
from duesweep.config.sections import DEFAULT_SCHEMAS, LimitConfig, QueueConfig, RouteConfig
from duesweep.config.spark_environment import (
    has_cluster_files,
    has_prepared_session,
    has_remote_spark,
    jars,
    spark_command,
)
from duesweep.config.started import started
from duesweep.config.tracing_environment import trace_settings

__all__ = [
    "DEFAULT_SCHEMAS",
    "Config",
    "EndpointSettings",
    "LimitConfig",
    "MetricsConfig",
    "QueueConfig",
    "RouteConfig",
    "has_cluster_files",
    "has_prepared_session",
    "has_remote_spark",
    "holds_password",
    "jars",
    "load",
    "mask_secrets",
    "route_notice",
    "settings_of",
    "spark_command",
    "started",
    "trace_settings",
]
