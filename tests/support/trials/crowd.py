"""Two sweeps, a loop of sweeps and NServiceBus's mover on one store; each is killed at random. A
sweep may be a watcher's. Each may be frozen before.
"""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from duesweep.stores.leases import LEASE_SECONDS
from support.trials.points import WHEN, Plan
from support.trials.processes import Ending, SweepCommand, start_mover
from support.trials.world import World
from support.waiting import until

# Whose points every sweep reaches that has something to do.
_NAMES = (
    *("TaskSession.claim", "QueueSession.deliver", "TaskSession.finish"),
    *("COMMIT of TaskSession.transaction", "TaskSession.end_slice", "Sweeps.close"),
    *("Journal.seal", "LedgerTables.write(tombstones)", "LedgerTables.write(sweeps)"),
    "Journal.delete_settled",
)
# How many sweeps at once: two first, and then the loop's, one after the other.
_ROUNDS = (2, 1, 1)
_SECONDS = 120
# A watcher does not end by itself if others have done all that was left.
_WATCHED_SECONDS = 6.0
# Shorter and longer than its leases last.
_FROZEN_SECONDS = (3.0, LEASE_SECONDS + 3.0)


class Crowd:
    """All of them, in `folder`, by the settings of `config`."""

    def __init__(self, seed: int, world: World, folder: Path, config: Path) -> None:
        self._rng = random.Random(seed)
        self._world = world
        self._folder = folder
        self._config = str(config)
        self._numbers = itertools.count()
        # Of the sweeps that were started.
        self.plans: list[Plan] = []
        self._watchers: list[SweepCommand] = []

    def run(self) -> Iterator[Ending]:
        """Run them until all have ended or are dead; how each sweep ended."""
        for sweeps in _ROUNDS:
            self._world.load(self._rng, has_bad=False)
            started = [self._start() for _ in range(sweeps)]
            mover = None
            try:
                for command, plan in started:
                    self._await(command, plan)
                    # Not before: it would have moved all of them.
                    mover = mover or start_mover(self._world)
                    if not command.is_over:
                        os.kill(command.pid, signal.SIGKILL)
                    yield command.wait(_SECONDS)
            finally:
                if mover is not None:
                    mover.kill()
                    mover.wait()

    def _await(self, command: SweepCommand, plan: Plan) -> None:
        """Until the command is at its point or over; it may be frozen for a while there."""
        end = time.monotonic() + (_WATCHED_SECONDS if command in self._watchers else 2 * _SECONDS)
        until(lambda: plan.fired.exists() or command.is_over or time.monotonic() > end)
        if not command.is_over and self._rng.random() < 0.5:
            os.kill(command.pid, signal.SIGSTOP)
            time.sleep(self._rng.choice(_FROZEN_SECONDS))
            os.kill(command.pid, signal.SIGCONT)
            # A point holds one thread; the others continue.
            time.sleep(self._rng.uniform(0, 1))

    def _start(self) -> tuple[SweepCommand, Plan]:
        folder = self._folder / f"sweep-{next(self._numbers)}"
        folder.mkdir()
        when, name = self._rng.choice(WHEN), self._rng.choice(_NAMES)
        plan = Plan(str(folder), f"{when} {name}")
        self.plans.append(plan)
        is_watcher = self._rng.random() < 0.5
        words = ["watch"] if is_watcher else ["sweep", "--json"]
        command = SweepCommand(folder, plan, [*words, "--config", self._config])
        if is_watcher:
            self._watchers.append(command)
        return command, plan
