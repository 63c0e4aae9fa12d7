"""Reading a configuration file: TOML in UTF-8, with or without a byte order mark."""

import codecs
import re
import tomllib
from pathlib import Path
from typing import Any

from duesweep.core.errors import ConfigError

# UTF-32's little-endian mark begins with that of UTF-16.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_TWICE = re.compile(r"Cannot declare \((?P<names>.*)\) twice (?P<place>\(at .*\))")
_NAME = r"'([^']*)'"
# The largest that makes sense has some thousand routes.
_MOST_BYTES = 1_000_000


def content_of(file: Path) -> dict[str, Any]:
    """The parsed file. Raises `ConfigError` for a file that cannot be read or parsed."""
    text = text_of(file)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        fault, advice = _in_words(str(error))
        raise ConfigError(f"{file} is not valid TOML: {fault}", advice=advice) from error
    except RecursionError as error:
        raise ConfigError(
            f"{file} is nested too deeply", advice="remove brackets: no setting needs so many"
        ) from error
    except ValueError as error:
        # Python's own limit, which TOML does not have.
        raise ConfigError(
            f"{file} holds a number of thousands of digits", advice="write a shorter number"
        ) from error


def _in_words(fault: str) -> tuple[str, str]:
    """An error of Python's parser for people, and what to do about it."""
    if twice := _TWICE.fullmatch(fault):
        section = f"[{'.'.join(re.findall(_NAME, twice['names']))}]"
        return (
            f"{section} is there twice {twice['place']}",
            f"put all its settings under one {section}",
        )
    if fault.startswith("Cannot overwrite a value"):
        return fault.replace("Cannot overwrite a value", "A setting is there twice"), (
            "remove one of the two"
        )
    return fault, "write [section] or key = value, text in quotes, and close quotes and brackets"


def text_of(file: Path) -> str:
    """The file as text. Raises `ConfigError` for a file that cannot be read."""
    content = _bytes_of(file).removeprefix(codecs.BOM_UTF8)
    for mark, encoding in _OTHER_MARKS.items():
        if content.startswith(mark):
            raise ConfigError(f"{file} is written in {encoding}", advice="save it as UTF-8")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
        raise ConfigError(
            f"{file} is not UTF-8: byte 0x{content[error.start]:02X} in line {line}, column "
            f"{column}",
            advice="save it as UTF-8",
        ) from error


def _bytes_of(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be read: {error.strerror or error}",
            advice="check its path and its permissions",
        ) from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(
            f"{file} has more than {_MOST_BYTES:,} bytes, too many for a configuration",
            advice="check its path",
        )
    return content
