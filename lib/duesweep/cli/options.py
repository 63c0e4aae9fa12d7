"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; default: duesweep.toml if it exists."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="A setting that overrides file and environment."
    ),
]
PrintSql = Annotated[
    bool, typer.Option("--print-sql", help="Print the statements; connect to nothing.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON for each result.")]
Connection = Annotated[
    str | None, typer.Option(help="The NAME of a [queues.NAME] section; default: default.")
]
