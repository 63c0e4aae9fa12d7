"""Replays that are killed, that run at once, and that are large: each error arrives once."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from duesweep import steer
from duesweep.core.change import Command, CommandName
from duesweep.core.error_rows import ErrorFilter
from duesweep.core.headers import json as headers_json
from duesweep.core.message import MESSAGE_ID
from duesweep.core.moment import Moment
from duesweep.exhausted import ExhaustedMessages
from duesweep.ledger import opening
from duesweep.replay import Choice, Found, Replay, Target, find_errors
from duesweep.steer import CommandReport, run_command
from duesweep.sweep.job import SweepContext
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.trials.armed import dying

_ROWS = 25
_BATCH_ROWS = 10


def _fail(endpoint: Endpoint, count: int, **overrides: object) -> list[DelayedRow]:
    """Sweep messages without a queue, so that they are exhausted; then create the queue."""
    endpoint.set_up()
    due = endpoint.due_in(-60)
    rows = [delayed_row("Billing", due=due, body=b"%d\xff\x00" % n) for n in range(count)]
    endpoint.load(rows)
    settings = {
        "retry__max_attempts": 1,
        "retry__max_exhausted_per_sweep": count,
        "sweep__batch_rows": _BATCH_ROWS,
        **overrides,
    }
    summary = run_sweep(endpoint, **settings)
    assert summary.exhausted == count
    endpoint.create_queue("Billing")
    return rows


def _replay(
    context: SweepContext,
    target: Target | None = None,
    find: Callable[..., Found] = find_errors,
) -> tuple[CommandReport, Replay]:
    """Replay all that is open, as the command does."""
    ledger = opening.open_ledger(context.ledger_root, context.ledger_writer, None)
    messages = ExhaustedMessages(ledger, context.store.source)
    steer.settle_earlier(context, ledger)
    found = find(messages, ErrorFilter())
    choice = Choice(messages, found.rows)
    work = Replay(context, "Sales.Orders", choice, target or Target())
    command = Command(CommandName.REPLAY, "test", "test")
    return run_command(context, ledger, command, work), work


def _replay_and_die(
    context: SweepContext, point: str, occurrence: int = 1, target: Target | None = None
) -> None:
    """A replay that dies at a crash point."""
    with dying(context, point, occurrence) as dying_context:
        _replay(dying_context, target)


def _ids(rows: list[DelayedRow]) -> list[str]:
    return sorted(str(headers_json.read(row.headers)[MESSAGE_ID]) for row in rows)


def _arrived(endpoint: Endpoint) -> list[str]:
    return sorted(row.message_id for row in endpoint.queue_rows("Billing"))


def _replayed(ledger: LedgerReader) -> list[str]:
    return sorted(row.message_id for row in ledger.rows("changes") if row.change == "replayed")


@pytest.mark.long
def test_ten_thousand_errors_arrive_once_byte_for_byte_and_a_second_run_replays_none(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, 10_000, sweep__batch_rows=2_000)
    context = endpoint.context()

    first, _ = _replay(context)
    second, _ = _replay(context)

    assert (first.tally.changed, first.ledger_error) == (10_000, None)
    assert second.tally.changed == 0
    assert sorted((row.headers, row.body or b"") for row in endpoint.queue_rows("Billing")) == (
        sorted((headers_json.remove_forward_destination(r.headers), r.body or b"") for r in rows)
    )
    assert _replayed(ledger) == _ids(rows)


_BEFORE_CLOSE = "before DriverSession.close_sweep"
_JOURNALLED = "after ChangesMessages.journal_changes"


@pytest.mark.parametrize(
    ("point", "occurrence", "done"),
    [
        # In the second batch, after it was delivered.
        ("before ChangesMessages.journal_changes", 2, _BATCH_ROWS),
        (_JOURNALLED, 2, _BATCH_ROWS),
        (_BEFORE_CLOSE, 1, _ROWS),
        ("before DriverSession.seal", 1, _ROWS),
        # The journal still has what the ledger has got.
        ("before DriverSession.delete_settled", 1, _ROWS),
    ],
)
def test_replay_that_is_killed_is_settled_first_and_only_the_rest_is_replayed(
    point: str, occurrence: int, done: int, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, _ROWS)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS)
    _replay_and_die(context, point, occurrence)
    assert len(_arrived(endpoint)) == done

    report, _ = _replay(context)

    assert report.tally.changed == _ROWS - done
    assert _arrived(endpoint) == _ids(rows)
    assert _replayed(ledger) == _ids(rows)


def test_sweep_settles_a_replay_that_was_killed(endpoint: Endpoint, ledger: LedgerReader) -> None:
    rows = _fail(endpoint, _ROWS)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS)
    _replay_and_die(context, _BEFORE_CLOSE)

    run_sweep(context)

    assert _replayed(ledger) == _ids(rows)


def test_kill_between_the_commits_of_queue_and_store_doubles_one_batch_at_most(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, _ROWS, queues__default__dsn=endpoint.dsn)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS, queues__default__dsn=endpoint.dsn)
    assert not context.queue.shares_transaction
    _replay_and_die(context, "after QueueSession.commit", 2)
    assert len(_arrived(endpoint)) == 2 * _BATCH_ROWS

    report, _ = _replay(context)

    assert report.tally.changed == _ROWS - _BATCH_ROWS
    arrived = Counter(_arrived(endpoint))
    assert sorted(arrived) == _ids(rows)
    assert sorted(arrived.values()) == [1] * (_ROWS - _BATCH_ROWS) + [2] * _BATCH_ROWS
    assert _replayed(ledger) == _ids(rows)


def test_messages_that_are_put_back_by_a_killed_replay_are_not_put_back_twice(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, _ROWS)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS)
    _replay_and_die(context, _JOURNALLED, 2, Target(due=Moment()))
    assert len(endpoint.waiting()) == _BATCH_ROWS

    _replay(context, Target(due=Moment()))
    run_sweep(context)

    assert _arrived(endpoint) == _ids(rows)
    assert _replayed(ledger) == _ids(rows)


def test_of_two_replays_at_once_the_second_leaves_out_what_the_first_has_done(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, _ROWS)
    context = endpoint.context(sweep__batch_rows=_BATCH_ROWS)
    have_chosen = threading.Barrier(2, timeout=60)

    def find(*arguments: Any) -> Found:
        found = find_errors(*arguments)
        # Both choose all errors before either of them replays any.
        have_chosen.wait()
        return found

    with ThreadPoolExecutor(2) as pool:
        done = [
            each.result(60) for each in [pool.submit(_replay, context, find=find) for _ in range(2)]
        ]

    changed = sorted(report.tally.changed for report, _ in done)
    left_out = sorted(work.account.done_before for _, work in done)
    assert (changed, left_out) == ([0, _ROWS], [0, _ROWS])
    assert _arrived(endpoint) == _ids(rows)
    assert _replayed(ledger) == _ids(rows)
