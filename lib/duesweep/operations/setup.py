"""Creates the tables of an endpoint, one database after another."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from duesweep.config.adapters import named_by
from duesweep.config.adapters.roles import (
    refuse_misspelt,
    refuse_other_tables,
    setup_steps,
)
from duesweep.core.errors import Problem
from duesweep.core.result import Result
from duesweep.operations.endpoint import Endpoint

_MORE_GRANTS = """\
-- Queues of other endpoints: `duesweep doctor --print-sql`, run as this role, prints the grants for
-- destinations of waiting messages. `duesweep errors replay`, `restore` and `queue send --delay`
-- need INSERT on the delayed table."""


@dataclass(frozen=True, slots=True)
class SetUp(Result):
    """The done steps, in words, and the others."""

    done: Sequence[str]
    problems: Sequence[Problem] = field(repr=False)


def set_up(endpoint: Endpoint, *, rebind: bool = False, new_endpoint: bool = False) -> SetUp:
    """Create missing tables. `rebind`: free the source from its ledger first. Raises `ConfigError`
    if another endpoint may be meant, unless it is to be a `new_endpoint`, and if a table is there
    with another shape.
    """
    steps = setup_steps(endpoint.config)
    if not new_endpoint:
        refuse_misspelt(steps)
    if not rebind:
        # A source that is to be freed has its tables; each step looks at its own.
        refuse_other_tables(steps)
    found = [each for step in steps for each in step.install(rebind=rebind)]
    done = [each for each in found if not isinstance(each, Problem)]
    return SetUp(done, [each for each in found if isinstance(each, Problem)])


def setup_script(
    endpoint: Endpoint, grant_to: str | None = None, *, new_endpoint: bool = False
) -> str:
    """All statements, with the grants that the role `grant_to` needs for sweeps. If there are
    several databases, comments say where each has to run. Raises `ConfigError` as `set_up`, if the
    store can be reached; it need not.
    """
    steps, parts = setup_steps(endpoint.config), list[str]()
    if not new_endpoint:
        refuse_misspelt(steps, needs_store=False)
    for step in steps:
        if len(steps) > 1:
            parts.append(f"-- In the database that {step.setting} names:")
        parts.append(step.script())
        if grant_to is not None:
            with named_by("--grant-to"):
                parts.append(step.grants(grant_to))
    return "\n".join([*parts, *([] if grant_to is None else [_MORE_GRANTS])])
