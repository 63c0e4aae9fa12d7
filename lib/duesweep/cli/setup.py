"""`duesweep setup` and `duesweep config`."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duesweep import config as configuration
from duesweep.core.errors import ConfigError, ExitCode, Problem
from duesweep.operations.setup import installer_of
from duesweep.stores.installed import Completed, IndexCreated, Unbound


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """`print_sql`: create nothing, and print also the rights of the role `grant_to`. `rebind`: free
    the source from its ledger first.
    """

    print_sql: bool = False
    grant_to: str | None = None
    rebind: bool = False
    as_json: bool = False


def run(file: Path | None, overrides: Sequence[str], options: SetupOptions) -> int:
    """Create what is missing, or print the SQL statements that would create it."""
    if options.grant_to is not None and not options.print_sql:
        raise ConfigError(
            "--grant-to grants nothing by itself",
            advice="give --print-sql too, and let an administrator run what it prints",
        )
    config = configuration.load(file, overrides)
    installer = installer_of(config)
    if options.print_sql:
        script = installer.script(options.grant_to)
        print(json.dumps({"sql": script}) if options.as_json else script)
        return ExitCode.DONE
    created = installer.install(rebind=options.rebind)
    told = [_told(one) for one in created if not isinstance(one, Problem)]
    told = [*([installer.custom] if installer.custom else []), *told]
    for problem in created:
        if isinstance(problem, Problem):
            print(f"duesweep: {problem}", file=sys.stderr)
    if options.as_json:
        print(json.dumps({"done": told}))
    else:
        print("\n".join(told) if told else "Everything exists already.")
    return ExitCode.DONE


def _told(one: object) -> str:
    is_told = isinstance(one, Completed | IndexCreated | Unbound)
    return str(one) if is_told else f"created {one}"


def show(file: Path | None, overrides: Sequence[str]) -> int:
    """Print the effective configuration."""
    print(json.dumps(configuration.mask_secrets(configuration.load(file, overrides)), indent=2))
    return ExitCode.DONE
