"""`duesweep setup` and `duesweep config`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from duesweep import config as configuration
from duesweep import wiring
from duesweep.errors import ExitCode, Problem
from duesweep.stores.installed import Completed, IndexCreated, Unbound


def run(file: Path | None, overrides: Sequence[str], *, print_sql: bool, rebind: bool) -> int:
    """Create what is missing, or print the SQL statements that would create it."""
    config = configuration.load(file, overrides)
    installer = wiring.installer(config)
    if print_sql:
        print(installer.script())
        return ExitCode.DONE
    created = installer.install(rebind=rebind)
    if installer.custom:
        print(installer.custom)
    for one in created:
        if isinstance(one, Problem):
            print(f"duesweep: {one}", file=sys.stderr)
        else:
            is_told = isinstance(one, Completed | IndexCreated | Unbound)
            print(one if is_told else f"created {one}")
    if not created and not installer.custom:
        print("Everything exists already.")
    return ExitCode.DONE


def show(file: Path | None, overrides: Sequence[str]) -> int:
    """Print the effective configuration."""
    print(json.dumps(configuration.mask_secrets(configuration.load(file, overrides)), indent=2))
    return ExitCode.DONE
