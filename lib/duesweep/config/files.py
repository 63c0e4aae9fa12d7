"""Files of settings: TOML in UTF-8, with or without a byte order mark; for one endpoint or more.

    [defaults]                  # of all endpoints of this file
    ledger.root = "/var/lib/duesweep/ledger"

    [[endpoint]]                # one for each endpoint
    store.endpoint = "Sales"

In a folder each `.toml` file counts.
"""

import codecs
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep.core.errors import ConfigError, Problem, shorten

_DEFAULT_FILE = Path("duesweep.toml")
_VARIABLE = "DUESWEEP_STORE__ENDPOINT"
_DEFAULTS, _ENDPOINTS = "defaults", "endpoint"
# UTF-32's little-endian mark begins with UTF-16's.
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

Content = Mapping[str, Any]
# A setting's path; a number counts the sections of a list from 0.
Location = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """One endpoint's settings. `label` names it if it has no other name yet (empty: it is of no
    file), `options` on a command line; `error`: its file cannot be read. In `file` they are below
    `sections`, of which each overrides the next; None: there is no file.
    """

    label: str
    content: Content
    error: ConfigError | None = None
    file: Path | None = None
    sections: Sequence[Location] = ()
    options: Sequence[str] = ()


def settings_of(paths: Sequence[Path] = (), endpoint: str | None = None) -> list[EndpointSettings]:
    """The endpoints of these files and folders, in their order; without a path, of
    duesweep.toml, which may be missing. `endpoint`: only endpoints of this name.

    Raises `ConfigError` for a path that leads to none, if none has the name, or if the environment
    gives all of them another one. One of several files that cannot be read is an endpoint with an
    error.
    """
    if paths or _DEFAULT_FILE.exists():
        several = len(paths) > 1
        found = [
            each
            for path in paths or [_DEFAULT_FILE]
            for each in _in_path(path, is_one_of_several=several)
        ]
    else:
        found = [EndpointSettings(str(_DEFAULT_FILE), {})]
    if endpoint is None:
        return found
    variable = next((name for name in os.environ if name.upper() == _VARIABLE), None)
    if variable is not None:
        raise ConfigError(
            f"--endpoint chooses by the store.endpoint of files, and {variable} in the environment "
            "is in place of all of them",
            advice="unset the variable, or leave out --endpoint",
        )
    chosen = [each for each in found if _name(each.content) == endpoint]
    if not chosen:
        names = sorted({name for each in found if (name := _name(each.content))})
        absent = Problem(
            f"No configuration has the store.endpoint {shorten(endpoint)}",
            f"name one of these with --endpoint: {', '.join(names)}"
            if names
            else "name files with --config that have it",
        )
        # It may be in a file that cannot be read.
        raise ConfigError.of_all([absent, *(each.error.problem for each in found if each.error)])
    return chosen


def only_one(of: Path | None, found: Sequence[EndpointSettings]) -> EndpointSettings:
    """The only one of the endpoints in a file. Raises `ConfigError` for several."""
    if len(found) > 1:
        name = next(filter(None, (_name(each.content) for each in found)), "Sales")
        raise ConfigError(
            f"{shorten(str(of or _DEFAULT_FILE))} has the settings of {len(found)} endpoints, and "
            "one is needed",
            advice=f"name it, as in --endpoint {name}",
        )
    return found[0]


def _in_path(path: Path, *, is_one_of_several: bool) -> list[EndpointSettings]:
    try:
        is_folder = path.is_dir()
    except OSError:
        # One that cannot be looked at is refused as a file.
        is_folder = False
    if is_folder:
        return _in_folder(path)
    if not is_one_of_several:
        return _in_file(path)
    # A wrong path is a mistake of the command; wrong content is this endpoint's alone.
    _require_file(path)
    return _in_one_of_several(path)


def _in_folder(folder: Path) -> list[EndpointSettings]:
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise ConfigError(
            f"The folder {folder} holds no configuration", advice="put .toml files there"
        )
    return [each for file in files for each in _in_one_of_several(file)]


def _in_one_of_several(file: Path) -> list[EndpointSettings]:
    try:
        return _in_file(file)
    except ConfigError as error:
        return [EndpointSettings(str(file), {}, error)]


def _in_file(file: Path) -> list[EndpointSettings]:
    _require_file(file)
    return list(_endpoints(file, content_of(file)))


def _endpoints(file: Path, content: Content) -> Iterator[EndpointSettings]:
    own = dict(content)
    defaults = _table(own.pop(_DEFAULTS, {}), file)
    options = ["--config", str(file.absolute())]
    entries = own.pop(_ENDPOINTS, None)
    if entries is None:
        whole = merged(defaults, own)
        yield EndpointSettings(
            str(file), whole, file=file, sections=((), (_DEFAULTS,)), options=options
        )
        return
    if own:
        raise ConfigError(
            f"{file} has [[{_ENDPOINTS}]] and, outside of it, {', '.join(sorted(own))}",
            advice=f"put settings for all endpoints under [{_DEFAULTS}]",
        )
    if not isinstance(entries, list):
        raise ConfigError(
            f"{file} has one [{_ENDPOINTS}]", advice=f"write [[{_ENDPOINTS}]], once for each"
        )
    for number, entry in enumerate(entries, 1):
        settings = merged(defaults, _table(entry, file))
        name = _name(settings)
        yield EndpointSettings(
            f"{file}, endpoint {name or number}",
            settings,
            file=file,
            sections=((_ENDPOINTS, number - 1), (_DEFAULTS,)),
            options=[*options, "--endpoint", name] if name else options,
        )


def _require_file(file: Path) -> None:
    """Raise `ConfigError` unless this is a file."""
    path = shorten(str(file))
    try:
        if file.is_file():
            return
        is_there = file.exists()
        fault = f"{path} is not a file" if is_there else f"There is no configuration file {path}"
    except OSError as error:
        fault = f"{path} cannot be read: {error.strerror}"
    raise ConfigError(fault, advice="give one with --config")


def merged(below: Content, above: Content) -> Content:
    """Both, table by table; where both have a value, `above` wins."""
    found = dict(below)
    for name, value in above.items():
        earlier = found.get(name)
        if isinstance(earlier, Mapping) and isinstance(value, Mapping):
            found[name] = merged(earlier, value)
        else:
            found[name] = value
    return found


def _table(value: object, file: Path) -> Content:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"In {file}, [{_DEFAULTS}] or [[{_ENDPOINTS}]] is not a table",
            advice=f"write it as a section with the header [{_DEFAULTS}] or [[{_ENDPOINTS}]]",
        )
    return value


def _name(content: Content) -> str | None:
    store = content.get("store")
    name = store.get("endpoint") if isinstance(store, Mapping) else None
    return name if isinstance(name, str) else None


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
            f"{file} is nested too deeply",
            advice="remove brackets: no setting has more than a few levels",
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
