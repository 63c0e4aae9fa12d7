"""Rows that move under a plan: whatever happens to them between plan and claim, no message is
early, lost or doubled, and the next sweep delivers the messages that this one could not.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import psycopg
import pytest

from duesweep.core.account import SweepReport
from duesweep.core.errors import StoreError
from duesweep.operations.duesweep import Duesweep
from duesweep.operations.look import Look, look_at
from duesweep.operations.opening import choose_engine
from duesweep.operations.run import run_once
from duesweep.stores.due import Slices
from duesweep.stores.sql_sweeps import SqlSweeps
from duesweep.stores.sweeps import SweepRun
from duesweep.sweep.stop import Stop
from duesweep_testing.builders import DelayedRow
from support.endpoint import ON_BOTH_SERVERS, Endpoint
from support.sweeps import run_sweep

_DELAYED = '"Sales.Orders.Delayed"'
_MESSAGES, _BATCH_ROWS = 24, 5
_HOUR = 3_600
_CHANGING = ("--yes", "--reason", "a trial")
# NServiceBus's statement: the message goes to the endpoint's own queue, with its destination.
_MOVE = (
    f"WITH m AS (DELETE FROM {_DELAYED} WHERE id = ANY(%s::uuid[]) RETURNING id, headers, body)"
    ' INSERT INTO "Sales.Orders" (id, headers, body) SELECT id, headers, body FROM m'
)

Step = Callable[["_Rows", Sequence[str]], None]


class _Rows:
    """An endpoint's messages: the keys of all that were ever due, of the ones that are `later`, and
    of the ones that a test has deleted.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.due = set(self.add(_MESSAGES))
        self.later: set[str] = set()
        self.gone: set[str] = set()

    def add(self, count: int, seconds: int = -60) -> list[str]:
        due = self.endpoint.due_in(seconds)
        # The key is the body too, so that the queue tells which message arrived.
        keys = [f"{next(_NUMBERS):08x}-5aaa-11f0-8000-0242ac120002" for _ in range(count)]
        self.endpoint.load([DelayedRow(key=key, body=key.encode(), due=due) for key in keys])
        return keys

    def execute(self, text: str, keys: Sequence[str]) -> None:
        self.endpoint.execute(text.replace("%s", "'{" + ",".join(keys) + "}'"))

    def sweep(self, monkeypatch: pytest.MonkeyPatch, *steps: tuple[Step, Sequence[str]]) -> Any:
        """A sweep, with these steps between its plan and its first claim."""
        note = SqlSweeps.note_slices

        def disturb(session: SqlSweeps, run: SweepRun, plan: Slices) -> int:
            before = note(session, run, plan)
            for step, keys in steps:
                step(self, keys)
            return before

        with monkeypatch.context() as patch:
            patch.setattr(SqlSweeps, "note_slices", disturb)
            return run_sweep(self.endpoint, sweep__batch_rows=_BATCH_ROWS)

    def check(self, *reports: SweepReport) -> None:
        """Each due message was delivered once, by a sweep or a mover. No other message was."""
        arrived, moved = self.arrived("Billing"), self.arrived(self.endpoint.name)
        assert Counter(arrived + moved) == Counter(self.due - self.gone - self.later)
        waiting = self.endpoint.fetch(f"SELECT convert_from(body, 'UTF8') AS key FROM {_DELAYED}")
        assert {row.key for row in waiting} == self.later
        assert sum(report.dispatched for report in reports) == len(arrived)
        for report in reports:
            counted = report.dispatched + report.gone + report.eligible_later + report.skipped
            assert report.found == counted + report.left
        told = [
            str(row.message_key)
            for row in self.endpoint.ledger.rows("tombstones")
            if row.outcome == "dispatched"
        ]
        assert len(told) == len({*told}) == len(arrived)

    def arrived(self, queue: str) -> list[str]:
        return [(row.body or b"").decode() for row in self.endpoint.queue_rows(queue)]


_NUMBERS = iter(range(1, 1_000_000))


def _change(rows: _Rows, keys: Sequence[str]) -> None:
    rows.execute(f"UPDATE {_DELAYED} SET body = body WHERE id = ANY(%s::uuid[])", keys)


def _reschedule(rows: _Rows, keys: Sequence[str]) -> None:
    statement = f"UPDATE {_DELAYED} SET due = due + interval '1 day' WHERE id = ANY(%s::uuid[])"
    rows.execute(statement, keys)
    rows.later |= {*keys} - rows.gone


def _replace_by_due(rows: _Rows, keys: Sequence[str]) -> None:
    _empty_places(rows, keys)
    rows.due |= {*rows.add(len(keys))}


def _replace_by_later(rows: _Rows, keys: Sequence[str]) -> None:
    _empty_places(rows, keys)
    later = rows.add(len(keys), _HOUR)
    rows.later |= {*later}


def _empty_places(rows: _Rows, keys: Sequence[str]) -> None:
    rows.execute(f"DELETE FROM {_DELAYED} WHERE id = ANY(%s::uuid[])", keys)
    rows.later -= {*keys}
    rows.gone |= {*keys}
    # So that others can take them.
    rows.execute(f"VACUUM {_DELAYED}", ())


def _rewrite(rows: _Rows, keys: Sequence[str]) -> None:
    rows.execute(f"DELETE FROM {_DELAYED} WHERE id = ANY(%s::uuid[])", keys[:3])
    rows.later -= {*keys[:3]}
    rows.gone |= {*keys[:3]}
    rows.execute(f"VACUUM FULL {_DELAYED}", ())


def _move(rows: _Rows, keys: Sequence[str]) -> None:
    rows.execute(_MOVE, sorted({*keys} - rows.later))


def _reschedule_by_command(rows: _Rows, keys: Sequence[str]) -> None:
    assert rows.endpoint.run("reschedule", *keys, "--to", "+1d", *_CHANGING).code == 0
    rows.later |= {*keys}


def _cancel_and_restore(rows: _Rows, keys: Sequence[str]) -> None:
    """They come back under new keys, due as before."""
    for command in ("cancel", "restore"):
        assert rows.endpoint.run(command, *keys, *_CHANGING).code == 0


_STEPS = (_change, _reschedule, _replace_by_due, _replace_by_later, _rewrite, _move)
_COMMANDS = (_reschedule_by_command, _cancel_and_restore)


@pytest.mark.parametrize("step", [*_STEPS, *_COMMANDS], ids=lambda step: step.__name__[1:])
def test_row_that_moves_between_plan_and_claim_is_neither_early_nor_lost_nor_doubled(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    rows = _Rows(endpoint.set_up("Billing"))
    keys = sorted(rows.due)[:12:2]

    first = rows.sweep(monkeypatch, (step, keys))
    if step is _change:
        # It is at another place, and due as before.
        assert (first.dispatched, first.gone) == (_MESSAGES, 0)
    if step in {_reschedule, _reschedule_by_command}:
        assert (first.eligible_later, first.gone) == (len(keys), 0)

    rows.check(first, run_sweep(endpoint))


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_move_several_times_are_neither_early_nor_lost_nor_doubled(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random, rows = Random(seed), _Rows(endpoint.set_up("Billing"))
    reports = []
    for _ in range(3):
        waiting = sorted({*endpoint.waiting()} - rows.later)
        steps = [
            (random.choice(_STEPS), random.sample(waiting, len(waiting) // 3)) for _ in range(2)
        ]
        reports.append(rows.sweep(monkeypatch, *steps))
        rows.due |= {*rows.add(8)}

    rows.check(*reports, run_sweep(endpoint), run_sweep(endpoint))


@pytest.mark.usefixtures("no_spark_session")
def test_sweep_after_a_look_delivers_the_messages_of_its_plan_once(endpoint: Endpoint) -> None:
    """The look plans already."""
    rows = _Rows(endpoint.set_up("Billing"))
    moved, later = sorted(rows.due)[:3], sorted(rows.due)[3:6]
    looks: list[Look] = []

    def between(seen: Sequence[tuple[Duesweep, Look]]) -> None:
        looks.extend(look for _, look in seen)
        _move(rows, moved)
        _reschedule(rows, later)
        rows.due |= {*rows.add(5)}

    one = Duesweep(endpoint.config())
    first = run_once(one, before=between).report
    second = one.sweep().report

    assert looks[0].planned is not None
    assert first is not None
    assert second is not None
    assert (first.found, first.gone, first.eligible_later) == (_MESSAGES, 3, 3)
    planned = looks[0].planned
    assert planned is not None
    assert first.horizon == planned.horizon.before
    assert second.found == 5
    rows.check(first, second)


@pytest.mark.usefixtures("no_spark_session")
@ON_BOTH_SERVERS
def test_sweep_of_a_message_takes_two_connections_and_closes_both(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look's, with which the driver continues, and a slice's."""
    endpoint.set_up("Billing", "error").delay()
    one = Duesweep(endpoint.config(retry__error_queue="error"))
    dialect = type(one.context.store.dialect)  # type: ignore[attr-defined]
    connect, sessions = dialect.connect, list[Any]()

    def connecting(*arguments: Any) -> Any:
        sessions.append(connect(*arguments))
        return sessions[-1]

    monkeypatch.setattr(dialect, "connect", staticmethod(connecting))
    run = one.sweep()

    assert run.report is not None
    assert run.report.dispatched == 1
    assert len(sessions) == 2
    for session in sessions:
        with pytest.raises(StoreError):
            session.row("doctor_clock")


def test_look_that_leaves_the_work_to_spark_plans_nothing(endpoint: Endpoint) -> None:
    _Rows(endpoint.set_up("Billing"))

    context = endpoint.context(sweep__spark_from=_MESSAGES)
    with look_at(
        context, choose_engine(context, prefers_session=False), Stop(), plans=True
    ) as look:
        assert (look.has_work, look.needs_spark, look.planned) == (True, True, None)


def test_rows_that_move_while_they_are_claimed_are_neither_early_nor_lost_nor_doubled(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = _Rows(endpoint.set_up("Billing"))
    rows.due |= {*rows.add(150)}
    keys, is_over, random = sorted(rows.due), threading.Event(), Random(7)

    def disturb() -> None:
        with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
            while not is_over.is_set():
                some = random.sample(keys, 5)
                for statement in (
                    f"UPDATE {_DELAYED} SET body = body WHERE id = ANY(%s::uuid[])",
                    f"UPDATE {_DELAYED} SET due = due + interval '1 day'"
                    " WHERE id = ANY(%s::uuid[]) AND due < now() RETURNING id",
                    _MOVE,
                ):
                    # Two of them may wait for each other.
                    with suppress(psycopg.errors.DeadlockDetected):
                        cursor = connection.execute(statement.encode(), (some,))
                        if "RETURNING id" in statement and statement is not _MOVE:
                            rows.later |= {str(row[0]) for row in cursor.fetchall()}
                    some = random.sample(keys, 5)
                connection.execute(f"VACUUM FULL {_DELAYED}".encode())

    def begin(_rows: _Rows, _keys: Sequence[str]) -> None:
        thread.start()

    thread = threading.Thread(target=disturb, daemon=True)
    first = rows.sweep(monkeypatch, (begin, ()))
    is_over.set()
    thread.join(60)
    second = run_sweep(endpoint)
    # A mover takes a message whatever its Due.
    rows.later -= {*rows.arrived(endpoint.name)}

    rows.check(first, second)
