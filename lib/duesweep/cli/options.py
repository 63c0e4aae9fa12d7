"""Options that commands share."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from duesweep.core.errors import ConfigError

_MAY_BE_SECRET = re.compile(r"[^=]*(dsn|url|password|pwd|secret|token)\s*=", re.IGNORECASE)


def _refuse_passwords(settings: Sequence[str] | None) -> Sequence[str] | None:
    """Raise `ConfigError` for a password, since all users of a machine see its command lines."""
    given = [setting for setting in settings or () if _MAY_BE_SECRET.match(setting)]
    if given:
        # Only now: it loads pydantic, which the help does without.
        from duesweep.config import holds_password  # noqa: PLC0415

        for setting in filter(holds_password, given):
            path = setting.partition("=")[0].strip()
            variable = f"DUESWEEP_{path.upper().replace('.', '__')}"
            raise ConfigError(
                f"--set {path} has a password, which every user of this machine can see",
                advice=f"set {variable} in the environment, and change the password",
            )
    return settings


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; default: duesweep.toml if it exists."),
]
EndpointName = Annotated[
    str | None,
    typer.Option(
        "--endpoint", metavar="NAME", help="Which endpoint, where the configuration has several."
    ),
]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        help="TOML file, or a folder of them; may be repeated; default: duesweep.toml if it "
        "exists.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="A setting that overrides file and environment. Not for passwords.",
        callback=_refuse_passwords,
    ),
]
PrintSql = Annotated[
    bool, typer.Option("--print-sql", help="Print the statements; connect to nothing.")
]
OneDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON for each result.")]
Connection = Annotated[
    str | None, typer.Option(help="The NAME of a [queues.NAME] section; default: default.")
]
