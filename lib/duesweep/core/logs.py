"""The log: events with their values on stderr, by structlog: as text on a terminal, elsewhere as
lines of JSON. The first line loads it: that takes a tenth of a second, and most sweeps log nothing.
"""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from duesweep.core.errors import make_printable
from duesweep.core.passing import printing


class Level(StrEnum):
    """How much is logged: events of this level and worse ones."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """As Python's `logging` has it."""
        return int(logging.getLevelName(self.upper()))


class _State:
    """Of this process. `used` and `processors`: how structlog was configured here."""

    level = Level.INFO
    used: Level | None = None
    processors: list[Any] | None = None
    step = ""


def use(level: Level) -> None:
    """Log at this level, also the lines of Python's `logging`."""
    _State.level, _State.step = level, ""
    own = logging.getLogger("duesweep")
    # Their details are not for each run.
    own.setLevel(logging.WARNING if level is Level.INFO else level.number)
    if not own.handlers:
        own.addHandler(_Lines())


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


def step(text: str) -> None:
    """Name the step that a long command begins: a line of the log at the level `debug`, and the
    terminal's passing line until the next step.
    """
    _State.step = text
    if _State.level is Level.DEBUG:
        _logger().debug(text)


def current_step() -> str:
    """The step that was named last; empty: none was."""
    return _State.step


class _Lines(logging.Handler):
    """Lines of Python's `logging` as events."""

    def emit(self, record: logging.LogRecord) -> None:
        _logger().log(record.levelno, record.getMessage())


class _Stderr:
    """Standard error, of which the log takes whole lines. A terminal that is closed, or a reader
    that is gone, ends no delivery.
    """

    def __init__(self) -> None:
        self._stderr = sys.stderr

    def write(self, text: str) -> None:
        with printing(), suppress(OSError):
            self._stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stderr.flush()


def _logger() -> Any:
    import structlog  # noqa: PLC0415

    # A program that uses duesweep may have a way of its own.
    is_ours = structlog.get_config()["processors"] is _State.processors
    if not structlog.is_configured() or (is_ours and _State.used is not _State.level):
        _State.used = _State.level
        _State.processors = _processors()
        structlog.configure(
            processors=_State.processors,
            wrapper_class=structlog.make_filtering_bound_logger(_State.level.number),
            logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]
        )
    return structlog.get_logger()


def _processors() -> list[Any]:
    from structlog import dev, processors  # noqa: PLC0415

    first = [processors.add_log_level, processors.format_exc_info]
    if not sys.stderr.isatty():
        return [*first, processors.TimeStamper(fmt="iso"), processors.JSONRenderer()]
    stamp = processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S UTC")
    text = dev.ConsoleRenderer(colors=False, repr_native_str=True, pad_event_to=0, pad_level=False)
    return [*first, stamp, _printable, text]


def _printable(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A terminal obeys characters that JSON escapes. Values are escaped by the renderer."""
    for name in ("event", "exception"):
        if name in event:
            event[name] = "\n".join(map(make_printable, event[name].split("\n")))
    return event
