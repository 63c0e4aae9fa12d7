"""Replaces values that differ from run to run, so that all else can be compared.

Instants are moved, as if the messages had been stored at noon on 1 January 2030: a Due is exact to
the second, and what happens while the commands run is cut to the hour. Random ids are numbered by
the step that showed them first. Durations of the run itself, rates and sizes of files are masked.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

STORED_AT = datetime(2030, 1, 1, 12, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)
# A Due is a quarter of an hour away from a whole hour after that noon; other times are not.
_QUARTERS = (timedelta(minutes=15), timedelta(minutes=45))
_FAR = timedelta(days=60)
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
# All that the world itself makes begin so.
_FIXED = re.compile(r"(\d)\1{7}-0000-4000-8000-\d{12}|0{8}-0000-0000-0000-0{12}")
_UUID_WIDTH = 36
_INSTANT = re.compile(
    r"\b(20\d\d-[01]\d-[0-3]\d)([T ])([0-2]\d:[0-5]\d:[0-5]\d)([.:]\d{3,6})?((?:[+-]00:00)|Z)?"
)
# Of the time that commands take themselves; a Due is days away, which has other units.
_SHORT = re.compile(r"(?<![\w.:-])\d[\d,.]* (?:ms|s)\b(?! or so)|\b\d+ min \d+ s\b")
# The frames of a stack, which name files and lines of the program; line ends may be escaped.
_FRAMES = re.compile(
    r"(Traceback \(most recent call last\):)(?:\n|\\+n).*?"
    r"(?=(?:\n|\\+n) *[\w.]+(?:Error|Exception):? )",
    re.DOTALL,
)
_LONG_RUN = re.compile(r"(.)\1{99,}")
# A figure of a plot over time: how many there are depends on the minute in which a test began.
_FIGURE = re.compile(r"^\| [0-3]\d [A-Z][a-z]{2} [0-2]\d:[0-5]\d \| .*\n", re.MULTILINE)
_RATE = re.compile(r"\d[\d,.]* rows/s")


class Normaliser:
    """Of one world, whose messages were stored at `base`, a whole second."""

    def __init__(self, base: datetime) -> None:
        self._moved_by = STORED_AT - base
        self._base = base
        self._ids: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self.step = ""
        self._has_numbers = True
        self._texts: list[tuple[str, str]] = []

    def name(self, text: str, placeholder: str) -> None:
        """Print `placeholder` for `text`, as for a folder."""
        self._texts.append((text, placeholder))

    def text(self, text: str, *, width: int = _UUID_WIDTH) -> str:
        """The output of a command. Columns keep their widths: an id's placeholder has `width`."""
        for given, placeholder in self._texts:
            text = text.replace(given, placeholder)
        text = _UUID.sub(lambda found: self.identity(found[0]).ljust(width, "-"), text)
        text = _INSTANT.sub(self._moved_text, text)
        text = _FRAMES.sub(r"\1 …", text)
        text = _LONG_RUN.sub(lambda run: f"<{len(run[0]):,} times {run[1]}>", text)
        text = _FIGURE.sub("", text)
        text = _RATE.sub("<rate>", text)
        return _SHORT.sub("<time>", text)

    def value(self, value: Any, key: str = "") -> Any:
        """A part of a JSON document, or the value of a column."""
        if key in _MASKS:
            return _MASKS[key](value)
        if isinstance(value, dict):
            return {self.text(name): self.value(one, name) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(one) for one in value]
        if key.endswith("_us") and isinstance(value, int):
            value = _EPOCH + timedelta(microseconds=value)
        return self._single(value)

    def _single(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return self.moved(value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
        if isinstance(value, UUID):
            return self.identity(str(value))
        return self.text(value, width=0) if isinstance(value, str) else value

    @contextmanager
    def without_numbers(self) -> Iterator[None]:
        """New ids get no numbers in this block."""
        self._has_numbers = False
        try:
            yield
        finally:
            self._has_numbers = True

    def identity(self, uuid: str) -> str:
        """A placeholder for a random id, the same each time."""
        if _FIXED.fullmatch(uuid):
            return uuid
        if uuid not in self._ids and self._has_numbers:
            number = self._counts[self.step] = self._counts.get(self.step, 0) + 1
            self._ids[uuid] = f"<{self.step}-{number}>"
        return self._ids.get(uuid, "<id>")

    def moved(self, instant: datetime) -> datetime:
        """When it would have been if the messages had been stored at `STORED_AT`."""
        after = instant - self._base
        if abs(after) > _FAR:
            # Written in a command or a message, and the same each time.
            return instant
        is_due = after % _HOUR in _QUARTERS
        return STORED_AT + (after if is_due else after // _HOUR * _HOUR)

    def _moved_text(self, found: re.Match[str]) -> str:
        day, separator, time, fraction, zone = found.groups()
        instant = datetime.fromisoformat(f"{day}T{time}+00:00")
        if abs(instant - self._base) > _FAR:
            return found[0]
        text = self.moved(instant).strftime(f"%Y-%m-%d{separator}%H:%M:%S")
        digits = re.sub(r"\d", "0", fraction or "")
        return f"{text}{digits}{zone or ''}"


def _hours(milliseconds: Any) -> Any:
    """The rest is the time that the commands took until then."""
    if isinstance(milliseconds, list):
        return [_hours(one) for one in milliseconds]
    return milliseconds if milliseconds is None else f"<{milliseconds // 3_600_000:.0f} h>"


def _mask(value: object) -> object:
    return value and "<varies>"


# By the names of keys and columns.
_MASKS: dict[str, Callable[[Any], Any]] = {
    "lateness_ms": _hours,
    "lateness_p50_ms": _hours,
    "lateness_p95_ms": _hours,
    "lateness_max_ms": _hours,
    "rows_per_second": _mask,
    "seconds": _mask,
}
