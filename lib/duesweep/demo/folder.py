"""The demonstration's folder: the database's files, the ledger, and a configuration for both."""

import fcntl
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from duesweep import config as configuration
from duesweep.config import Config
from duesweep.errors import ConfigError

# Marks the folder as ours, so that nothing of anybody else's is ever deleted; locked while in use.
_MARK = ".duesweep-demo"
_MADE_ANEW = ("pgdata", "ledger", "duesweep.toml")

Settings = Mapping[str, Mapping[str, object]]


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Be the only one in `folder`, which is made where there is none.

    Raises `ConfigError` where it holds something else, or is in use.
    """
    mark = folder / _MARK
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise ConfigError(
            f"{folder} holds something else than a demonstration, which begins by deleting what is "
            "there",
            advice="name another one with --folder",
        )
    folder.mkdir(parents=True, exist_ok=True)
    with mark.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"Another demonstration is running in {folder}",
                advice="wait for it, or name another folder with --folder",
            ) from error
        yield


def emptied(folder: Path) -> bool:
    """Delete what an earlier demonstration left; whether there was any."""
    left = [folder / name for name in _MADE_ANEW if (folder / name).exists()]
    for path in left:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return bool(left)


def configured(file: Path, settings: Settings, comment: str) -> Config:
    """Write `settings` into `file`, and what they mean.

    Raises `ConfigError` where the environment says anything else: it goes over the file, and could
    send the demonstration to a real database.
    """
    lines = [f"# {comment}"]
    for section, values in settings.items():
        lines += ["", f"[{section}]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")
    config = configuration.load(file)
    if _explicit(config) != settings:
        raise ConfigError(
            "The environment holds settings of duesweep (DUESWEEP_…), which would go over the "
            "demonstration's own",
            advice="unset them",
        )
    return config


def _explicit(config: Config) -> Settings:
    set_by_us = config.model_dump(exclude_unset=True, by_alias=True)
    store = set_by_us["store"]
    if isinstance(store["dsn"], SecretStr):
        store["dsn"] = store["dsn"].get_secret_value()
    return set_by_us
