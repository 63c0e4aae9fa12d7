"""What a form is filled with. Without I/O."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from duesweep.core.errors import ConfigError

# A sweep ends so long before the next one begins, so that its batch in hand is done by then.
_SPARE_SECONDS = 10
_LEAST_SECONDS = 10
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
# Kubernetes cuts a CronJob's name at 52 characters; `duesweep-` is in front of this one.
_LONGEST_NAME = 40
MOUNT = "/etc/duesweep"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`title` is the endpoint, or what stands for several. `command` runs duesweep. `config` is the
    absolute path of the file, maybe with `#` and an endpoint's name, or of a folder; `overrides`
    are what `--set` gets. `variables` are names of environment variables that have to be set,
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

    @property
    def file(self) -> str:
        """The file or folder, without the endpoint's name behind it."""
        return self.config.partition("#")[0]

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
        """The five fields of cron. Raises `ConfigError` for what cron cannot say."""
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
