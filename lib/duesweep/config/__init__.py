"""Configuration. No other part of the package reads the environment."""

from duesweep.config.dsn import holds_password
from duesweep.config.fleet import EndpointSettings, settings_of
from duesweep.config.load import load, mask_secrets
from duesweep.config.model import Config
from duesweep.config.otlp_environment import otlp_settings
from duesweep.config.own_command import given_variables, own_command
from duesweep.config.reload import keep_fixed
from duesweep.config.rules import route_notice
from duesweep.config.running import MetricsConfig
from duesweep.config.sections import DEFAULT_SCHEMAS, LimitConfig, QueueConfig, RouteConfig
from duesweep.config.spark_environment import (
    has_cluster_files,
    has_prepared_session,
    jars,
    spark_command,
)
from duesweep.config.started import started

__all__ = [
    "DEFAULT_SCHEMAS",
    "Config",
    "EndpointSettings",
    "LimitConfig",
    "MetricsConfig",
    "QueueConfig",
    "RouteConfig",
    "given_variables",
    "has_cluster_files",
    "has_prepared_session",
    "holds_password",
    "jars",
    "keep_fixed",
    "load",
    "mask_secrets",
    "otlp_settings",
    "own_command",
    "route_notice",
    "settings_of",
    "spark_command",
    "started",
]
