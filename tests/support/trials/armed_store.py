"""A store that brings the trial's plan to Spark's workers."""

from dataclasses import dataclass
from typing import Any

from support.trials.points import Plan, arm


@dataclass(frozen=True)
class ArmedStore:
    """`store`; who opens a session of a task follows `plan`."""

    store: Any
    plan: Plan

    def open_task(self) -> Any:
        arm(self.plan)
        return self.store.open_task()

    def __getattr__(self, name: str) -> Any:
        # Also called while it is unpickled, when it has no store yet.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.store, name)
