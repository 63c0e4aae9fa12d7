"""Forms in which other programs run duesweep: cron, systemd, Kubernetes, Airflow."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from duesweep import __version__
from duesweep import config as configuration
from duesweep.config.adapters.endpoint import ledger_root
from duesweep.core.errors import ConfigError, make_printable
from duesweep.ledger.base import local_folder

# None of Prometheus's exporters has it: their list, from 9100 to 9999, has no free port left.
_PORT = 10187
_SHORTEST = timedelta(seconds=1)
_DEFAULT_FILE = Path("duesweep.toml")
# A sweep ends this long before the next one begins, so that its current batch is done by then.
_SPARE_SECONDS = 10
_LEAST_SECONDS = 10
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
# Kubernetes cuts a CronJob's name at 52 characters; `duesweep-` is in front of this one.
_LONGEST_NAME = 40
MOUNT = "/etc/duesweep"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`title` is the endpoint, or a name for several. `command` runs duesweep. `config` is the
    absolute path of the file or folder, `endpoint` what `--endpoint` gets, `overrides` what `--set`
    gets. `variables` are names of environment variables that have to be set,
    `ledgers` the local folders of ledgers. `is_fleet`: it has several endpoints.
    """

    title: str
    command: Sequence[str]
    config: str
    is_folder: bool
    overrides: Sequence[str]
    every: timedelta
    variables: Sequence[str]
    ledgers: Sequence[str]
    is_fleet: bool = False
    endpoint: str | None = None

    @property
    def mounted(self) -> str:
        """The configuration where its file, or the files of its folder, are mounted."""
        return MOUNT if self.is_folder else f"{MOUNT}/{self.config.rpartition('/')[2]}"

    @property
    def name(self) -> str:
        """The title in small letters, digits and hyphens."""
        plain = re.sub("[^a-z0-9]+", "-", self.title.lower()).strip("-")
        return plain[:_LONGEST_NAME].strip("-") or "endpoint"

    def words(self, command: str, *options: str, config: str | None = None) -> Sequence[str]:
        """The words of a command line without the program; `config` is where the file is there."""
        given = [word for setting in self.overrides for word in ("--set", setting)]
        if self.endpoint is not None:
            given = ["--endpoint", self.endpoint, *given]
        return [command, "--config", config or self.config, *given, *options]

    @property
    def seconds(self) -> int:
        """Seconds from one sweep to the next."""
        return int(self.every.total_seconds())

    @property
    def max_seconds(self) -> int:
        """For how long a sweep may run: until shortly before the next one."""
        return max(_LEAST_SECONDS, self.seconds - _SPARE_SECONDS)

    @property
    def cron(self) -> str:
        """The five fields of cron. Raises `ConfigError` for times that cron cannot say."""
        minutes, rest = divmod(self.seconds, _MINUTE)
        if rest == 0 and 0 < self.seconds < _HOUR and _HOUR % self.seconds == 0:
            return "* * * * *" if minutes == 1 else f"*/{minutes} * * * *"
        hours, rest = divmod(self.seconds, _HOUR)
        if rest == 0 and 0 < self.seconds < _DAY and _DAY % self.seconds == 0:
            return "0 * * * *" if hours == 1 else f"0 */{hours} * * *"
        if self.seconds == _DAY:
            return "0 0 * * *"
        raise ConfigError(
            f"cron cannot run something every {self.every}",
            advice="give --every as minutes that divide an hour, hours that divide a day, or 1d; "
            "systemd takes any time, and `duesweep watch` needs none",
        )


def schedule(
    form: str,
    path: Path | None,
    overrides: Sequence[str],
    every: timedelta,
    *,
    endpoint: str | None = None,
) -> str:
    """A form that runs `path`'s endpoint, or endpoints, this often; None: the default file. Raises
    `ConfigError` for settings that the form cannot say.
    """
    if every < _SHORTEST:
        raise ConfigError("--every is less than a second", advice="use `duesweep watch`")
    path = (path or _DEFAULT_FILE).absolute()
    given = configuration.settings_of([path], endpoint)
    loaded = [configuration.load(each, overrides) for each in given]
    folders = [local_folder(ledger_root(each.ledger.root)) for each in loaded]
    title = loaded[0].store.endpoint if len(loaded) == 1 else path.stem
    scheduled = Scheduled(
        # Forms have it in comments and in quotes.
        title=make_printable(title).replace('"', "'").replace("\\", "/"),
        command=configuration.own_command(),
        config=str(path),
        is_folder=path.is_dir(),
        overrides=overrides,
        every=every,
        variables=configuration.given_variables(),
        ledgers=sorted({str(folder) for folder in folders if folder is not None}),
        is_fleet=len(loaded) > 1,
        endpoint=endpoint,
    )
    return _render(form, scheduled)


def _render(form: str, scheduled: Scheduled) -> str:
    environment = Environment(  # noqa: S701 - no page, but what machines read
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "airflow": _airflow,
        "cron": lambda text: text.replace("%", r"\%"),
        "json": json.dumps,
        "shell": shlex.quote,
        "systemd": _systemd,
        "systemd_path": lambda path: _systemd(path).replace("$$", "$"),
    }
    text = files("duesweep.operations").joinpath("forms", form).read_text(encoding="utf-8")
    return environment.from_string(text).render(
        s=scheduled, port=_PORT, mount=MOUNT, version=__version__
    )


def _systemd(text: str) -> str:
    """A word of a unit's command line: `%` and `$` have a meaning there, and quotes hold spaces."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(each in text for each in " '\t\\\"") else escaped


def _airflow(command: str) -> str:
    """A command as a literal of Python. Airflow also reads it as a template of Jinja."""
    is_template = any(mark in command for mark in ("{{", "{%", "{#"))
    return repr(f"{{% raw %}}{command}{{% endraw %}}" if is_template else command)
