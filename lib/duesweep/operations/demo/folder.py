"""The demonstration's folder: the database's files, the ledger, and a configuration for both."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.core.errors import ConfigError
from duesweep.drivers.process import open_lock

# Marks a folder of the demonstration: no other folder is ever cleared. Locked while in use.
_MARK = ".duesweep-demo"
_DATA = ("pgdata", "ledger")

Settings = Mapping[str, Mapping[str, object]]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock `folder` for one demonstration; create it if it does not exist.

    Raises `ConfigError` where it holds other files, is in use, or may not be written to.
    """
    mark = folder / _MARK
    if folder.is_dir() and not mark.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} holds other files than a demonstration's, and the demonstration deletes "
            "files in its folder",
            advice="name another one with --folder",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_lock(mark)
    except OSError as error:
        raise ConfigError(
            f"The demonstration cannot write into {folder}: {error.strerror}",
            advice="name a folder of your own with --folder",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"Another demonstration is running in {folder}",
                advice="wait for it, or name another folder with --folder",
            ) from error
        yield


def clear_folder(folder: Path) -> bool:
    """Delete the data of an earlier demonstration. Returns whether there was anything."""
    left = [folder / name for name in _DATA if (folder / name).exists()]
    for path in left:
        shutil.rmtree(path)
    return bool(left)


def write_config(file: Path, settings: Settings, comment: str) -> Config:
    """Write `settings` into `file`, and load it.

    Raises `ConfigError` where the environment changes a setting: it overrides the file, and could
    lead the demonstration to a real database.
    """
    lines = [f"# {comment}"]
    for section, values in settings.items():
        lines += ["", f"[{section}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    # An earlier file stays as it is if this one is refused.
    new = file.with_name(f".{file.name}")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write("\n".join(lines) + "\n")
    try:
        config = configuration.load(new)
        explicit = config.model_dump(exclude_unset=True, by_alias=True)
        explicit["store"]["dsn"] = config.store.dsn.get_secret_value()
        if explicit != settings:
            raise ConfigError(
                "The environment has settings of duesweep (DUESWEEP_…), which override the "
                "demonstration's settings",
                advice="unset them",
            )
        new.replace(file)
    finally:
        new.unlink(missing_ok=True)
    return config
