"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="TOML file; default: duesweep.toml where there is one."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="A setting, over file and environment."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One line of JSON for each result.")]
Connection = Annotated[
    str | None, typer.Option(help="Which of the configured queues.NAME; default: queues.default.")
]
