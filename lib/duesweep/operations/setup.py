"""Finds what `setup` creates, and in which databases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duesweep.config import Config
from duesweep.config.adapters.roles import CustomStoreStep, setup_steps

if TYPE_CHECKING:
    from duesweep.config.adapters.roles import SetupStep

_MORE_GRANTS = """\
-- Queues of other endpoints: `duesweep doctor --print-sql`, run as this role, prints the grants for
-- those that messages wait for. `duesweep queue send --delay` takes INSERT on the delayed table."""


@dataclass(frozen=True, slots=True)
class Installer:
    """Sets an endpoint up, one database after another."""

    steps: Sequence["SetupStep"]

    @property
    def custom(self) -> str | None:
        """What a custom store has done, because it does not say what it creates."""
        first = self.steps[0]
        return first.done if isinstance(first, CustomStoreStep) else None

    def script(self, grant_to: str | None = None) -> str:
        """All statements, with those that grant the role `grant_to` what sweeps need. If there are
        several databases, comments say where each has to run.
        """
        parts = []
        for step in self.steps:
            if len(self.steps) > 1:
                parts.append(f"-- In the database that {step.setting} names:")
            parts.append(step.script())
            if grant_to is not None:
                parts.append(step.grants(grant_to))
        return "\n".join([*parts, *([] if grant_to is None else [_MORE_GRANTS])])

    def install(self, *, rebind: bool) -> Sequence[object]:
        """Create what is missing. Returns the created tables."""
        return [table for step in self.steps for table in step.install(rebind=rebind)]


def installer_of(config: Config) -> Installer:
    """The installer of this configuration's endpoint."""
    return Installer(setup_steps(config))
