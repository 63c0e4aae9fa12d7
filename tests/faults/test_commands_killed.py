"""Operators' commands, killed at each step and raced: nothing lost, nothing doubled."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duesweep.cli.app import main
from duesweep.core.change import Command, CommandName
from duesweep.core.errors import StoreError
from duesweep.core.headers import read_json, remove_forward_destination
from duesweep.core.message import MESSAGE_ID
from duesweep_testing.builders import DelayedRow, delayed_row
from support.commands import Ran
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.trials.armed import dying
from support.waiting import until

BATCH_ROWS = 3
MESSAGES = 8
_WHY = ("--reason", "a test", "--yes")
_CANCEL, _RESTORE, _REPLAY = ("cancel", "--all"), ("restore",), ("errors", "replay", "--all")


class Acts(NamedTuple):
    """A command; the method that a batch of it calls last; the ledger's name of the change; and
    how many messages it has changed by now.
    """

    arguments: Sequence[str]
    method: str
    change: str
    count: Callable[[Endpoint], int]


def _waiting(endpoint: Endpoint) -> int:
    return len(endpoint.waiting())


def _due(endpoint: Endpoint) -> int:
    return len(endpoint.fetch(f"SELECT FROM {endpoint.delayed} WHERE due < now()"))


COMMANDS = {
    "cancel": Acts(_CANCEL, "cancel", "cancelled", lambda e: MESSAGES - _waiting(e)),
    "reschedule": Acts(
        ("reschedule", "--due-after", "+10m", "--to", "-1s"), "reschedule", "rescheduled", _due
    ),
    "restore": Acts(_RESTORE, "put_back", "restored", _waiting),
    "replay": Acts(_REPLAY, "put_back", "replayed", _waiting),
}
# The point at which each command dies, how often it has come there by then, and how much it has
# changed.
_DEATHS = [
    ("after Sweeps.open", 1, 0),
    ("after OperatorTask.{method}", 1, 0),
    ("after OperatorTask.{method}", 2, BATCH_ROWS),
    ("before Sweeps.close", 1, MESSAGES),
    ("after Sweeps.close", 1, MESSAGES),
    ("after Journal.seal", 1, MESSAGES),
    ("after LedgerTables.write(changes)", 1, MESSAGES),
    ("before Journal.delete_settled", 1, MESSAGES),
    ("after Journal.delete_settled", 1, MESSAGES),
]
# All commands begin and are settled alike: others than `cancel` die there with `--all` only.
_ALIKE = {
    "after Sweeps.open",
    "before Sweeps.close",
    "after Sweeps.close",
    "after Journal.seal",
    "before Journal.delete_settled",
    "after Journal.delete_settled",
}
# What only cancelling comes to: the table `changes` is there since the first command, and no other
# messages get tombstones.
_OF_CANCEL = [
    ("before OperatorTask.hold", 1, 0),
    ("after OperatorTask.hold", 1, 0),
    ("after LedgerTables.create(changes)", 1, MESSAGES),
    ("before LedgerTables.set_properties(tombstones)", 1, MESSAGES),
    ("after LedgerTables.write(tombstones)", 1, MESSAGES),
]


def _run(endpoint: Endpoint, *arguments: str) -> Ran:
    return endpoint.run(*arguments, *_WHY, sweep__batch_rows=BATCH_ROWS, retry__max_attempts=1)


def _prepare(name: str, endpoint: Endpoint, messages: int = MESSAGES) -> list[DelayedRow]:
    """A store that was swept before, so that its ledger is there, and messages for a command."""
    endpoint.set_up("Billing")
    assert run_sweep(endpoint).outcome == "done"
    is_of_errors = COMMANDS[name].change == "replayed"
    due = endpoint.due_in(-60 if is_of_errors else 3_600)
    rows = [delayed_row("Billing", due=due, body=b"%d\xff\x00" % n) for n in range(messages)]
    rows = endpoint.load(rows)
    if is_of_errors:
        endpoint.execute('DROP TABLE "Billing"')
        run_sweep(endpoint, retry__max_attempts=1)
        endpoint.create_queue("Billing")
    elif name == "restore":
        assert _run(endpoint, *_CANCEL).code == 0
    return rows


def _restoring(name: str, rows: Sequence[DelayedRow]) -> Sequence[str]:
    """The command's arguments: `restore` names messages."""
    keys = [row.key for row in rows] if name == "restore" else []
    return [*COMMANDS[name].arguments, *keys]


def _ids(rows: Sequence[DelayedRow]) -> list[str]:
    return sorted(str(read_json(row.headers)[MESSAGE_ID]) for row in rows)


def _check_each_once(
    name: str, endpoint: Endpoint, ledger: LedgerReader, rows: Sequence[DelayedRow]
) -> None:
    """Each message was changed once, by the ledger, and is at its place, whole."""
    changed = [row for row in ledger.rows("changes") if row.change == COMMANDS[name].change]
    assert sorted(row.message_id for row in changed) == _ids(rows)
    if name == "cancel":
        assert endpoint.waiting() == []
        cancelled = [r.message_key for r in ledger.rows("tombstones") if r.outcome == "cancelled"]
        assert sorted(cancelled) == sorted(row.key for row in rows)
        return
    if name in {"restore", "replay"} and endpoint.waiting():
        assert {row.new_key for row in changed} == set(endpoint.waiting())
    # The stored messages become due and are swept.
    endpoint.execute(f"UPDATE {endpoint.delayed} SET due = now() - interval '1 minute'")
    run_sweep(endpoint)
    arrived = [(row.headers, row.body) for row in endpoint.queue_rows("Billing")]
    assert sorted(arrived) == sorted(
        (remove_forward_destination(row.headers), row.body) for row in rows
    )


@pytest.mark.parametrize(
    ("name", "point", "occurrence", "changed"),
    [
        *(
            pytest.param(
                *(name, *death),
                marks=[pytest.mark.long] * (name != "cancel" and death[0] in _ALIKE),
            )
            for name in COMMANDS
            for death in _DEATHS
        ),
        *(("cancel", *death) for death in _OF_CANCEL),
    ],
)
def test_command_that_is_killed_is_settled_once_and_does_the_rest_when_it_is_run_again(
    name: str, point: str, occurrence: int, changed: int, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _prepare(name, endpoint)
    arguments = _restoring(name, rows)

    with dying(point.format(method=COMMANDS[name].method), occurrence):
        _run(endpoint, *arguments)

    assert COMMANDS[name].count(endpoint) == changed
    # It exits with 3 if all messages that it names are done.
    assert _run(endpoint, *arguments).code in {0, 3}
    if changed == MESSAGES:
        # Without work, it settles nothing.
        run_sweep(endpoint)
    _check_each_once(name, endpoint, ledger, rows)


@pytest.mark.parametrize("name", ["cancel", "reschedule", "replay"])
def test_sweep_settles_a_command_that_was_killed(
    name: str, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _prepare(name, endpoint)
    with dying("before Sweeps.close"):
        _run(endpoint, *COMMANDS[name].arguments)

    assert run_sweep(endpoint).dispatched == (0 if name == "cancel" else MESSAGES)

    for table in ("sweeps", "changes", "journal"):
        assert endpoint.fetch(f"SELECT FROM {endpoint.own_table(table)}") == []
    _check_each_once(name, endpoint, ledger, rows)


@pytest.mark.parametrize("name", ["cancel", "restore", "replay"])
def test_two_commands_at_once_change_each_message_once(
    name: str, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    rows = _prepare(name, endpoint, 300)
    file = endpoint.config_file(retry__max_attempts=1)
    arguments = [*_restoring(name, rows), *_WHY, "--config", str(file)]

    with ThreadPoolExecutor(2) as pool:
        codes = {int(each.result()) for each in [pool.submit(main, arguments) for _ in range(2)]}

    # One may have waited for the other for too long, or found its messages gone.
    assert codes <= {0, 3, 4}
    _check_each_once(name, endpoint, ledger, rows)


def test_two_cancels_at_once_and_a_sweep_take_each_message_once(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    run_sweep(endpoint)
    keys = endpoint.delay_many(600)
    arguments = [*_CANCEL, *_WHY, "--config", str(endpoint.config_file())]
    context = endpoint.context()

    with ThreadPoolExecutor(3) as pool:
        cancels = [pool.submit(main, arguments) for _ in range(2)]
        swept = pool.submit(run_sweep, context)
        assert {int(each.result()) for each in cancels} <= {0, 3, 4}
        swept.result()
    run_sweep(context)

    tombstones = ledger.rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    outcomes = Counter(row.outcome for row in tombstones)
    assert len(endpoint.queue_rows("Billing")) == outcomes["dispatched"]
    assert outcomes["cancelled"] == 600 - outcomes["dispatched"]


def test_restore_waits_a_moment_for_another_command_that_undoes(endpoint: Endpoint) -> None:
    rows = _prepare("restore", endpoint)
    command = Command(CommandName.REPLAY, "a@b", None)

    with endpoint.context().store.open_driver() as other, ThreadPoolExecutor(1) as pool:
        run = other.sweeps.open(other.due.horizon(), command=command)
        restored = pool.submit(_run, endpoint, *_restoring("restore", rows))
        time.sleep(1.0)
        other.sweeps.close(run.sweep_id, abandoned=False, remaining=0)
        other.journal.delete_settled(run.sweep_id, is_in_ledger=False)

    assert restored.result().code == 0
    assert len(endpoint.waiting()) == MESSAGES


def test_restore_does_not_begin_while_another_is_not_settled(endpoint: Endpoint) -> None:
    rows = _prepare("restore", endpoint)
    arguments = _restoring("restore", rows)

    with endpoint.context().store.open_driver() as other:
        # As one whose session was lost and came back: it lives, and holds no lock of the source.
        command = Command(CommandName.RESTORE, "a@b", None)
        other.sweeps.open(other.due.horizon(), command=command)
        refused = _run(endpoint, *arguments)
    assert (refused.code, "has not ended yet" in refused.err) == (4, True)

    assert _run(endpoint, *arguments).code == 0
    assert len(endpoint.waiting()) == MESSAGES


def test_error_says_what_the_command_had_done_before(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    _prepare("cancel", endpoint)
    with endpoint.context().store.open_changes() as session:
        kind = type(session)
    cancel, batches = kind.cancel, Counter[str]()

    def fail_in_the_second(self: Any, *arguments: Any) -> None:
        batches["begun"] += 1
        if batches["begun"] == 2:
            raise StoreError("The store is away", transient=True, advice="wait")
        cancel(self, *arguments)

    monkeypatch.setattr(kind, "cancel", fail_in_the_second)

    ran = _run(endpoint, *_CANCEL)

    assert (ran.code, "The store is away. By then command " in ran.err) == (4, True)
    assert f" had changed {BATCH_ROWS} or more messages" in ran.err
    assert len(endpoint.waiting()) == MESSAGES - BATCH_ROWS


_HELD = 7_042


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_pause_or_resume_that_is_killed_before_its_commit_was_never_given(
    command: str, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing", "Shipping")
    endpoint.delay_many(2, ["Billing", "Shipping"])
    pauses = endpoint.own_table("pauses")
    pause = ["pause", "Billing", "--reason", "the bank is down"]
    if command == "resume":
        assert endpoint.run(*pause).code == 0
    # What changes pauses waits before it commits.
    hold = f"PERFORM pg_advisory_xact_lock({_HELD}); RETURN NULL;"
    endpoint.server.add_trigger("AFTER INSERT OR DELETE", pauses, hold)
    endpoint.fetch(f"SELECT pg_advisory_lock({_HELD})")

    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "duesweep"),
            *(pause if command == "pause" else ["resume", "Billing"]),
            *("--config", str(endpoint.config_file())),
        ],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "lib")},
    )
    waits = f"SELECT FROM pg_locks WHERE objid = {_HELD} AND NOT granted"
    until(lambda: endpoint.fetch(waits))
    process.send_signal(signal.SIGKILL)
    process.wait()
    endpoint.fetch(f"SELECT pg_advisory_unlock({_HELD})")

    # No lock is left behind: sweeps obey the remaining pauses, and the next command gets its turn.
    is_paused = command == "resume"
    assert len(endpoint.fetch(f"SELECT FROM {pauses}")) == is_paused
    assert run_sweep(endpoint).dispatched == (1 if is_paused else 2)
    assert len(endpoint.waiting()) == is_paused
    assert endpoint.run(*pause).code == 0
