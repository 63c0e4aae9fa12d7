"""Configuration. Nothing else in the package reads the environment."""

from duesweep.config.jars import jars
from duesweep.config.load import load, masked
from duesweep.config.model import Config
from duesweep.config.rules import route_notice
from duesweep.config.sections import DEFAULT_SCHEMAS, QueueConfig, RouteConfig
from duesweep.config.started import started

__all__ = [
    "DEFAULT_SCHEMAS",
    "Config",
    "QueueConfig",
    "RouteConfig",
    "jars",
    "load",
    "masked",
    "route_notice",
    "started",
]
