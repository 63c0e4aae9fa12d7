"""The log: lines of an event and its values, as JSON on stderr, by structlog. The first line loads
it: that takes a tenth of a second, and most sweeps log nothing.
"""

import logging
import sys
from typing import Any


def info(event: str, **values: Any) -> None:
    """Log an event of the usual course."""
    _logger().info(event, **values)


def warning(event: str, **values: Any) -> None:
    """Log an event that an operator may have to act on."""
    _logger().warning(event, **values)


def error(event: str, **values: Any) -> None:
    """Log an event that an operator has to act on."""
    _logger().error(event, **values)


def exception(event: str, **values: Any) -> None:
    """Log the exception that is being handled, with its stack."""
    _logger().exception(event, **values)


def _logger() -> Any:
    import structlog  # noqa: PLC0415

    # A program that uses duesweep may have a way of its own.
    if not structlog.is_configured():
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
    return structlog.get_logger()
