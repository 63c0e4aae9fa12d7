"""Fills the forms."""

import json
import shlex
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from duesweep import __version__
from duesweep.schedule.values import MOUNT, Scheduled

_PORT = 9187


def render(form: str, scheduled: Scheduled) -> str:
    """A form for this endpoint. Raises `ConfigError` if it cannot be said in that form."""
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
    text = files("duesweep.schedule").joinpath("forms", form).read_text(encoding="utf-8")
    return environment.from_string(text).render(
        s=scheduled, port=_PORT, mount=MOUNT, version=__version__
    )


def _systemd(text: str) -> str:
    """A word of a unit's command line: `%` and `$` have a meaning there, and quotes hold spaces."""
    escaped = text.replace("\\", r"\\").replace('"', r"\"").replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(each in text for each in " '\t\\\"") else escaped


def _airflow(command: str) -> str:
    """A command as a literal of Python. Airflow reads it as a template of Jinja, too."""
    is_template = any(mark in command for mark in ("{{", "{%", "{#"))
    return repr(f"{{% raw %}}{command}{{% endraw %}}" if is_template else command)
