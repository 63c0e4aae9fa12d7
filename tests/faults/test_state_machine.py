"""Messages come, time passes, sweeps run, die and overlap in any order: nothing is lost."""

import itertools
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from duesweep.core.errors import SweepClosedError
from duesweep_testing.builders import delayed_row
from support.sweeps import run_sweep
from support.trials.armed import following
from support.trials.faults import STAGES, points
from support.trials.history import History, judge
from support.trials.messages import Expected, Kind
from support.trials.places import open_world
from support.trials.points import DIE, RAISE, DeathError, InjectedFaultError, Plan
from support.trials.services import Services
from support.trials.world import NAMES, ONE_DATABASE

_CREATING, _SETTLING = (points(stage, ONE_DATABASE) for stage in ("first ledger", "settle"))
_DISPATCHING = [
    point
    for stage in STAGES
    if stage not in {"first ledger", "settle"}
    for point in points(stage, ONE_DATABASE)
]
_ACTIONS = st.sampled_from([DIE, RAISE])
_BATCH_ROWS = 3
_HOUR = 3_600
_MOST_SWEEPS = 8


class Sweeps(RuleBasedStateMachine):
    """A store and its queues in one database, so each message has to arrive exactly once."""

    services: Services

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._world = self._stack.enter_context(open_world(ONE_DATABASE, self.services, folder))
        self._config = self._world.endpoint.config(
            sweep__batch_rows=_BATCH_ROWS, retry__max_attempts=2
        )
        self._numbers = itertools.count()
        # By key, how many hours until each message is due.
        self._hours: dict[str, int] = {}
        self._clock_ahead = 0.0

    @rule(count=st.integers(1, 8), hours=st.integers(-3, 3), to=st.sampled_from([*NAMES, None]))
    def enqueue(self, count: int, hours: int, to: str | None) -> None:
        self._enqueue(count, hours, to, Kind.GOOD)

    @rule(hours=st.integers(-3, 3), to=st.sampled_from(["Nowhere", '"unclosed']))
    def enqueue_bad(self, hours: int, to: str) -> None:
        self._enqueue(1, hours, to, Kind.BAD)

    @rule(hours=st.integers(1, 4))
    def advance(self, hours: int) -> None:
        """All that is stored becomes due so much earlier, and so do the next attempts."""
        endpoint = self._world.endpoint
        passed = f"make_interval(hours => {hours})"
        endpoint.execute(f"UPDATE {endpoint.delayed} SET due = due - {passed}")
        attempts = endpoint.own_table("attempts")
        endpoint.execute(f"UPDATE {attempts} SET next_attempt_at = next_attempt_at - {passed}")
        self._hours = {key: left - hours for key, left in self._hours.items()}

    @rule(hours=st.integers(-2, 2))
    def set_clock(self, hours: int) -> None:
        """The sweeper's own clock becomes wrong."""
        self._clock_ahead = float(hours * _HOUR)

    @rule()
    def sweep(self) -> None:
        self._sweep()

    @rule(point=st.sampled_from(_DISPATCHING), occurrence=st.integers(1, 2), action=_ACTIONS)
    def crash_while_dispatching(self, point: str, occurrence: int, action: str) -> None:
        self._crash(point, occurrence, action)

    @rule(point=st.sampled_from(_SETTLING), action=_ACTIONS)
    def crash_while_settling(self, point: str, action: str) -> None:
        self._crash(point, 1, action)

    @rule(point=st.sampled_from(_CREATING), action=_ACTIONS)
    def crash_while_creating_the_ledger(self, point: str, action: str) -> None:
        self._crash(point, 1, action)

    def _crash(self, point: str, occurrence: int, action: str) -> None:
        # So that there is something to do, and to count.
        self._enqueue(_BATCH_ROWS + 1, -1, "Billing", Kind.GOOD)
        self._enqueue(1, -1, "Nowhere", Kind.BAD)
        with tempfile.TemporaryDirectory() as folder:
            plan = Plan(folder, point, occurrence, action)
            # It is raised to here, or becomes the sweep's reason.
            with following(plan), suppress(DeathError, InjectedFaultError):
                self._sweep()

    @rule()
    def sweep_twice_at_once(self) -> None:
        with self._wrong_clock(), ThreadPoolExecutor(2) as pool:
            both = [pool.submit(run_sweep, self._config) for _ in range(2)]
            for ended in both:
                # A sweep that begins while the other one ends may take it for dead.
                with suppress(SweepClosedError):
                    ended.result(timeout=60)

    @invariant()
    def nothing_is_early_or_doubled(self) -> None:
        copies = [copy.identity for name in (*NAMES, None) for copy in self._world.read_queue(name)]
        assert len(copies) == len(set(copies))
        early = {one.identity for one in self._world.expected if self._hours[one.row.key] > 0}
        assert not early & set(copies)

    def teardown(self) -> None:
        try:
            self.advance(10)
            for _ in range(_MOST_SWEEPS):
                self._world.endpoint.end_back_off()
                self._sweep()
                if not self._world.endpoint.waiting() and not self._world.unsettled():
                    break
            verdict = judge(History.of(self._world))
            assert (verdict.lost, verdict.doubled, verdict.early) == (0, 0, 0)
            assert not verdict.untrue
        finally:
            self._stack.close()

    def _sweep(self) -> None:
        with self._wrong_clock():
            run_sweep(self._config)

    @contextmanager
    def _wrong_clock(self) -> Iterator[None]:
        real = time.time
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + self._clock_ahead)
            yield

    def _enqueue(self, count: int, hours: int, to: str | None, kind: Kind) -> None:
        endpoint = self._world.endpoint
        # Half an hour off, so that no message becomes due by itself.
        due = endpoint.due_in(hours * _HOUR - _HOUR / 2)
        for number in itertools.islice(self._numbers, count):
            (row,) = endpoint.load([delayed_row(to, body=b"%d" % number, due=due)])
            self._world.expected.append(Expected(row, kind, to if kind is Kind.GOOD else None))
            self._hours[row.key] = hours


# An example takes six seconds.
@pytest.mark.parametrize("examples", [4, pytest.param(20, marks=pytest.mark.long)])
def test_any_order_of_sweeps_and_crashes_delivers_each_message_once(
    examples: int, services: Services
) -> None:
    machine = type("SweepsHere", (Sweeps,), {"services": services})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            # To make an example smaller takes minutes; its steps are printed as they are.
            phases=[Phase.generate],
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
