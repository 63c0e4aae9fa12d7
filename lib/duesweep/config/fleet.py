"""The settings of several endpoints: files, folders of files, and files with several endpoints.

    [defaults]                  # of all endpoints of this file
    ledger.root = "/var/lib/duesweep/ledger"

    [[endpoint]]                # one for each endpoint
    store.endpoint = "Sales"

In a folder each `.toml` file counts, and `[defaults]` of its `defaults.toml` hold for all of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duesweep.config.file import content_of
from duesweep.config.places import Part
from duesweep.core.errors import ConfigError, shorten

_DEFAULTS, _ENDPOINTS = "defaults", "endpoint"
_FOLDER_FILE = "defaults.toml"
# Names the endpoint of a file that has several: `fleet.toml#Sales`.
_SEPARATOR = "#"

Content = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """What files say of one endpoint. `label` names it where it has no other name yet; `error`: its
    file cannot be read; of `parts`, each overrides the next.
    """

    label: str
    content: Content
    error: ConfigError | None = None
    parts: Sequence[Part] = ()


def settings_of(paths: Sequence[Path]) -> list[EndpointSettings]:
    """The endpoints of these files and folders, in their order. Raises `ConfigError` for a path
    that leads to none; a file of a folder that cannot be read is an endpoint with an error.
    """
    found: list[EndpointSettings] = []
    for path in paths:
        found += _in_folder(path) if _is_folder(path) else _in_file(path)
    return found


def _is_folder(path: Path) -> bool:
    """Whether this is a folder; one that cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _in_folder(folder: Path) -> list[EndpointSettings]:
    common = _defaults(folder / _FOLDER_FILE)
    files = [file for file in sorted(folder.glob("*.toml")) if file.name != _FOLDER_FILE]
    if not files:
        raise ConfigError(
            f"The folder {folder} holds no configuration", advice="put .toml files there"
        )
    found: list[EndpointSettings] = []
    for file in files:
        try:
            found += _in_file(file, common)
        except ConfigError as error:
            found.append(EndpointSettings(str(file), {}, error))
    return found


def _defaults(file: Path) -> Content:
    if not file.exists():
        return {}
    content = content_of(file)
    if set(content) - {_DEFAULTS}:
        raise ConfigError(
            f"{file} has more than [{_DEFAULTS}]",
            advice=f"put the settings of an endpoint into a file of its own, and those of all "
            f"under [{_DEFAULTS}]",
        )
    return _table(content.get(_DEFAULTS, {}), file)


def _in_file(path: Path, common: Content | None = None) -> list[EndpointSettings]:
    file, name = _split(path)
    require_file(file)
    found = list(_endpoints(file, content_of(file), common or {}))
    if name is None:
        return found
    chosen = [each for each in found if _name(each.content) == name]
    if not chosen:
        raise ConfigError(
            f"{file} has no [[{_ENDPOINTS}]] whose store.endpoint is {name}",
            advice="write one of these after #: "
            + ", ".join(filter(None, (_name(each.content) for each in found))),
        )
    return chosen


def _endpoints(file: Path, content: Content, common: Content) -> Iterator[EndpointSettings]:
    own = dict(content)
    defaults = merged(common, _table(own.pop(_DEFAULTS, {}), file))
    entries = own.pop(_ENDPOINTS, None)
    if entries is None:
        yield EndpointSettings(
            str(file), merged(defaults, own), parts=(Part(file), *_default_parts(file, common))
        )
        return
    if own:
        raise ConfigError(
            f"{file} has [[{_ENDPOINTS}]] and, outside of it, {', '.join(sorted(own))}",
            advice=f"put what all endpoints share under [{_DEFAULTS}]",
        )
    if not isinstance(entries, list):
        raise ConfigError(
            f"{file} has one [{_ENDPOINTS}]", advice=f"write [[{_ENDPOINTS}]], once for each"
        )
    for number, entry in enumerate(entries, 1):
        settings = merged(defaults, _table(entry, file))
        yield EndpointSettings(
            f"{file}, endpoint {_name(settings) or number}",
            settings,
            parts=(Part(file, (_ENDPOINTS, number - 1)), *_default_parts(file, common)),
        )


def _default_parts(file: Path, common: Content) -> Iterator[Part]:
    yield Part(file, (_DEFAULTS,))
    if common:
        yield Part(file.with_name(_FOLDER_FILE), (_DEFAULTS,))


def example_of(file: Path, found: Sequence[EndpointSettings]) -> str:
    """The `--config` that names the first endpoint of a file that has several."""
    name = next(filter(None, (_name(each.content) for each in found)), "Sales")
    return f"--config {shorten(str(file))}{_SEPARATOR}{name}"


def require_file(file: Path) -> None:
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


def _split(path: Path) -> tuple[Path, str | None]:
    """The file, and the name of the endpoint in it. A file may have a # in its own name."""
    head, separator, name = str(path).rpartition(_SEPARATOR)
    return (Path(head), name) if separator and not path.exists() else (path, None)


def _name(content: Content) -> str | None:
    store = content.get("store")
    name = store.get("endpoint") if isinstance(store, Mapping) else None
    return name if isinstance(name, str) else None
