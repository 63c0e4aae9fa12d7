"""The commands `cancel`, `reschedule` and `restore`: what they change, say and exit with."""

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duesweep.cli import commands
from duesweep.cli.app import main
from duesweep.core.message import MESSAGE_ID
from duesweep.errors import LedgerError
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.stores.journal import SweepReport
from duesweep_testing.builders import BODY, headers_text
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep
from support.waiting import until

HOUR = 3_600
REASON = ("--reason", "a test")


@pytest.fixture
def due_later(endpoint: Endpoint) -> list[str]:
    """Two messages for Billing and one for Shipping, due in an hour."""
    endpoint.set_up("Billing", "Shipping")
    billing = endpoint.delay_many(2, ["Billing"], due_in_seconds=HOUR)
    return [*billing, endpoint.delay("Shipping", due_in_seconds=HOUR)]


def run(endpoint: Endpoint, *arguments: str, **settings: object) -> int:
    file = str(endpoint.config_file(**settings))
    command, *others = arguments
    return main([command, "--config", file, *others])


def swept(endpoint: Endpoint) -> SweepReport:
    return run_sweep(endpoint)


def command_id(printed: str) -> str:
    found = re.search(r"Command ([0-9a-f-]{36})", printed)
    assert found is not None
    return found[1]


def test_cancelled_message_is_whole_in_the_ledger_and_its_tombstone_says_so(
    endpoint: Endpoint, ledger: LedgerReader, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.set_up("Billing")
    text = headers_text("Billing")
    key, other = (
        endpoint.delay(headers=text, due_in_seconds=HOUR),
        endpoint.delay(due_in_seconds=HOUR),
    )

    code = run(endpoint, "cancel", key, "--reason", "not wanted")

    assert code == 0
    printed = capsys.readouterr()
    assert "cancelled 1 message. Command " in printed.out
    assert printed.err == ""
    assert endpoint.waiting() == [other]
    (row,) = ledger.rows("changes")
    assert (row.command, row.change, row.reason) == ("cancel", "cancelled", "not wanted")
    assert (row.sweep_id, row.message_key) == (command_id(printed.out), key)
    assert (row.headers_text, bytes(row.body), row.body_bytes) == (text, BODY, len(BODY))
    assert row.headers == json.loads(text)
    assert "@" in row.given_by
    (tombstone,) = ledger.rows("tombstones")
    assert (tombstone.outcome, tombstone.message_key) == ("cancelled", key)
    assert (tombstone.due, tombstone.dispatched_at) == (row.due_before, row.changed_at)
    assert tombstone.lateness_ms is None
    assert ledger.rows("sweeps") == []
    assert endpoint.fetch("SELECT FROM duesweep_changes") == []
    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []


def test_filter_cancels_what_it_means_and_nothing_else(
    endpoint: Endpoint, due_later: Sequence[str], ledger: LedgerReader
) -> None:
    assert run(endpoint, "cancel", "--destination", "Bill*", "--yes", *REASON) == 0

    assert endpoint.waiting() == [due_later[2]]
    assert {row.message_key for row in ledger.rows("changes")} == set(due_later[:2])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "give keys or a filter, or --all"),
        (("--all", "--destination", "B*"), "--all means all messages"),
        (("--destination", "B*", *REASON), "there is no terminal"),
        (("--destination", "B*", "--yes"), "give one with --reason"),
        (("--all", *REASON), "there is no terminal"),
        (("--type", "*", "--scan-limit", "1", "--yes", *REASON), "raise --scan-limit"),
    ],
)
def test_unclear_command_changes_nothing(
    endpoint: Endpoint,
    due_later: Sequence[str],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    for command in (["cancel"], ["reschedule", "--to", "+1h"]):
        assert run(endpoint, *command, *arguments) == 2

        assert sentence in capsys.readouterr().err
    assert endpoint.waiting() == sorted(due_later)


def test_all_cancels_all(endpoint: Endpoint, due_later: Sequence[str]) -> None:
    assert due_later
    assert run(endpoint, "cancel", "--all", "--yes", *REASON) == 0

    assert endpoint.waiting() == []


def test_dry_run_shows_and_changes_nothing(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "cancel", "--destination", "Billing", "--dry-run", "--json") == 0

    document = json.loads(capsys.readouterr().out)
    assert (document["would_change"], document["destinations"]) == (2, {"Billing": 2})
    assert {one["key"] for one in document["messages"]} == set(due_later[:2])
    assert endpoint.waiting() == sorted(due_later)


def test_message_that_is_gone_is_told(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    gone = "00000000-0000-0000-0000-000000000001"

    assert run(endpoint, "cancel", gone, due_later[0], *REASON) == 3

    printed = capsys.readouterr()
    assert "cancelled 1 message." in printed.out
    assert "1 message not cancelled: not in the store" in printed.err
    assert run(endpoint, "cancel", gone) == 3


@pytest.mark.parametrize("asked", [("--message-id", "gone"), ("gone",)], ids=["id", "key"])
def test_message_that_nobody_has_is_told_beside_one_that_is_there(
    asked: tuple[str, ...],
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay(headers=headers_text("Billing", {MESSAGE_ID: "there"}), due_in_seconds=HOUR)
    key = endpoint.waiting()[0]
    known = ("--message-id", "there") if len(asked) > 1 else (key,)

    assert run(endpoint, "cancel", *known, *asked, "--json") == 3

    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], document["gone"], endpoint.waiting()) == (1, 1, [])
    assert run(endpoint, "cancel", *asked) == 3
    assert "1 message not cancelled: not in the store" in capsys.readouterr().err


@pytest.mark.parametrize(
    "spell",
    [str.upper, lambda key: f"{{{key}}}", lambda key: key.replace("-", "")],
    ids=["capitals", "braces", "no hyphens"],
)
def test_key_may_be_spelled_as_other_tools_show_it(
    spell: Callable[[str], str], endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.set_up("Billing")
    key = endpoint.delay("Billing", due_in_seconds=HOUR)

    assert run(endpoint, "show", spell(key)) == 0
    assert run(endpoint, "cancel", spell(key)) == 0
    assert endpoint.waiting() == []
    capsys.readouterr()
    assert run(endpoint, "show", spell(key)) == 0
    assert "cancelled" in capsys.readouterr().out
    assert run(endpoint, "restore", spell(key)) == 0
    assert len(endpoint.waiting()) == 1


def test_message_that_is_due_after_all_of_pythons_years_can_be_changed(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    first, second = (endpoint.delay("Billing", due_in_seconds=HOUR) for _ in range(2))
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        text = f"UPDATE {endpoint.delayed} SET due = '294276-12-31 12:00:00+00'"
        connection.execute(text.encode())

    assert run(endpoint, "cancel", first) == 0
    assert run(endpoint, "reschedule", second, "--to", "now") == 0

    assert swept(endpoint).dispatched == 1


def test_row_that_another_session_holds_stays_and_is_told(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(endpoint.dsn) as other:
        other.execute(f"SELECT FROM {endpoint.delayed} WHERE id = %s FOR UPDATE", [due_later[0]])

        assert run(endpoint, "cancel", *due_later, "--json", *REASON) == 3

    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], document["held"], document["gone"]) == (2, 1, 0)
    assert (document["exit_code"], document["command"]) == (3, "cancel")
    assert endpoint.waiting() == [due_later[0]]


def test_command_that_is_stopped_ends_after_the_batch_in_hand_and_says_so(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = "SELECT FROM pg_locks WHERE NOT granted"
    # Python's own, whatever a test before this has left.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(other: psycopg.Connection) -> None:
        until(lambda: endpoint.fetch(blocked))
        os.kill(os.getpid(), signal.SIGINT)
        other.rollback()

    try:
        with psycopg.connect(endpoint.dsn) as other, ThreadPoolExecutor(1) as pool:
            other.execute(f"LOCK TABLE {endpoint.own_table('changes')}")
            interrupted = pool.submit(interrupt, other)
            code = run(endpoint, "cancel", *due_later, "--json", *REASON, sweep__batch_rows=1)
            interrupted.result()
    finally:
        signal.signal(signal.SIGINT, before)

    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], document["is_stopped"], code) == (1, True, 3)
    assert len(endpoint.waiting()) == 2


def test_message_that_was_rescheduled_while_the_question_was_asked_stays(
    monkeypatch: pytest.MonkeyPatch,
    endpoint: Endpoint,
    due_later: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def confirm(_: str) -> bool:
        endpoint.execute(
            f"UPDATE {endpoint.delayed} SET due = due + interval '1 day' WHERE id = '{first}'"
        )
        return True

    first = due_later[0]
    monkeypatch.setattr(commands, "confirm", confirm)

    assert run(endpoint, "cancel", "--due-before", "+2h", *REASON) == 3

    assert "cancelled 2 messages" in capsys.readouterr().out
    assert endpoint.waiting() == [first]


def test_rescheduled_messages_are_due_then(
    endpoint: Endpoint, due_later: Sequence[str], ledger: LedgerReader
) -> None:
    by_two_hours, to_now, as_before = due_later

    assert run(endpoint, "reschedule", by_two_hours, "--by", "2h") == 0
    assert run(endpoint, "reschedule", to_now, "--to", "-1m", "--reason", "at once") == 0

    assert swept(endpoint).dispatched == 1
    assert endpoint.waiting() == sorted([by_two_hours, as_before])
    first, second = sorted(ledger.rows("changes"), key=lambda row: row.changed_at)
    assert first.due_after - first.due_before == timedelta(hours=2)
    assert second.due_after < second.changed_at < second.due_before
    assert (second.change, second.reason, second.headers_text) == ("rescheduled", "at once", None)
    dues = {
        str(row.id): row.due for row in endpoint.fetch(f"SELECT id, due FROM {endpoint.delayed}")
    }
    moved = dues[by_two_hours] - dues[as_before] - timedelta(hours=2)
    # Each was stored with a Due of its own.
    assert abs(moved) < timedelta(seconds=1)


def test_reschedule_takes_one_time(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "reschedule", due_later[0]) == 2
    assert run(endpoint, "reschedule", due_later[0], "--to", "+1h", "--by", "1h") == 2

    assert "takes one of --to and --by" in capsys.readouterr().err


def test_restored_message_is_as_it_was(
    endpoint: Endpoint, due_later: Sequence[str], ledger: LedgerReader
) -> None:
    columns = f"SELECT headers, body, due FROM {endpoint.delayed} WHERE headers LIKE '%Shipping%'"
    before = endpoint.fetch(columns)
    assert run(endpoint, "cancel", due_later[2]) == 0
    assert endpoint.fetch(columns) == []

    assert run(endpoint, "restore", due_later[2]) == 0

    assert endpoint.fetch(columns) == before
    by_change = {row.change: row for row in ledger.rows("changes")}
    cancelled, restored = by_change["cancelled"], by_change["restored"]
    assert (restored.of, restored.message_key) == (cancelled.sweep_id, due_later[2])
    assert restored.new_key in endpoint.waiting()
    assert restored.due_after == cancelled.due_before
    assert restored.body is None


def test_message_is_restored_once_unless_again_is_asked_for(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "cancel", due_later[0]) == 0
    assert run(endpoint, "restore", due_later[0]) == 0

    assert run(endpoint, "restore", due_later[0]) == 3

    assert "it was restored already (see --again)" in capsys.readouterr().err
    assert len(endpoint.waiting()) == 3
    assert run(endpoint, "restore", due_later[0], "--again") == 0
    assert len(endpoint.waiting()) == 4


def test_all_that_a_command_cancelled_is_restored_with_a_new_due(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert due_later
    assert run(endpoint, "cancel", "--destination", "Billing", "--yes", *REASON) == 0
    cancelled = command_id(capsys.readouterr().out)
    before = datetime.now(UTC)

    restored = run(endpoint, "restore", "--command", cancelled, "--to", "now", "--yes", *REASON)

    assert restored == 0
    report = swept(endpoint)
    assert report.dispatched == 2
    assert report.horizon >= before
    assert run(endpoint, "restore", "--command", cancelled, "--yes", *REASON) == 3


def test_message_that_the_table_refuses_is_told_and_the_others_are_restored(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "cancel", *due_later, *REASON) == 0
    command = command_id(capsys.readouterr().out)
    with psycopg.connect(endpoint.dsn, autocommit=True) as connection:
        check = f"ALTER TABLE {endpoint.delayed} ADD CHECK (headers NOT LIKE '%Shipping%')"
        connection.execute(check.encode())

    assert run(endpoint, "restore", "--command", command, "--yes", *REASON) == 3

    printed = capsys.readouterr()
    assert "restored 2 messages" in printed.out
    assert f"{due_later[2]} was not restored" in printed.err
    assert "violates check constraint" in printed.err
    assert len(endpoint.waiting()) == 2


def test_ctrl_c_at_the_question_of_restore_ends_it_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    endpoint: Endpoint,
    due_later: Sequence[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(endpoint, "cancel", *due_later, *REASON) == 0
    command = command_id(capsys.readouterr().out)

    def interrupt(_: str) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(commands, "confirm", interrupt)
    # Python's own, whatever a test before this has left.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert run(endpoint, "restore", "--command", command, *REASON) == 130
    finally:
        signal.signal(signal.SIGINT, before)

    assert endpoint.waiting() == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "`restore` was told no messages"),
        (("--command", "x"), "'x' is not the id of a command"),
    ],
)
def test_unclear_restore_is_refused(
    endpoint: Endpoint,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    endpoint.set_up("Billing")

    assert run(endpoint, "restore", *arguments) == 2

    assert sentence in capsys.readouterr().err


def test_command_whose_ledger_fails_is_settled_by_the_next_sweep(
    endpoint: Endpoint,
    due_later: Sequence[str],
    ledger: LedgerReader,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert swept(endpoint).outcome == "done"

    def fail(*_: object) -> None:
        raise LedgerError("The disk is full", transient=True)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaRsTables, "append", fail)
        assert run(endpoint, "cancel", due_later[0], "--json") == 4
    document = json.loads(capsys.readouterr().out)
    assert (document["changed"], document["ledger_error"]) == (1, "The disk is full")
    assert endpoint.waiting() == sorted(due_later[1:])

    assert run(endpoint, "sweep") == 0

    assert [row.message_key for row in ledger.rows("changes")] == [due_later[0]]
    assert [row.outcome for row in ledger.rows("tombstones")] == ["cancelled"]


def test_ledger_that_is_gone_lets_no_command_begin(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "cancel", due_later[0]) == 0
    (endpoint.folder / "ledger").rename(endpoint.folder / "away")

    assert run(endpoint, "cancel", due_later[1]) == 2

    assert "but there is none at" in capsys.readouterr().err
    assert endpoint.waiting() == sorted(due_later[1:])


def test_store_that_was_set_up_before_asks_for_setup_and_then_goes_on(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert swept(endpoint).outcome == "done"
    endpoint.execute("DROP TABLE duesweep_changes")
    endpoint.execute(
        "ALTER TABLE duesweep_sweeps DROP COLUMN command, DROP COLUMN given_by,"
        " DROP COLUMN given_reason"
    )
    for command in (["sweep"], ["cancel", due_later[0]]):
        assert run(endpoint, *command) == 2
        assert "run the command `setup`" in capsys.readouterr().err

    assert run(endpoint, "setup") == 0

    assert run(endpoint, "cancel", due_later[0]) == 0
    assert run(endpoint, "sweep") == 0


def test_ledger_that_has_lost_its_changes_is_refused(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(endpoint, "cancel", due_later[0]) == 0
    (endpoint.folder / "ledger" / "changes").rename(endpoint.folder / "lost")

    assert run(endpoint, "restore", due_later[0]) == 2

    assert "has lost the table changes" in capsys.readouterr().err
    assert endpoint.waiting() == sorted(due_later[1:])


@pytest.mark.parametrize("command", [("cancel",), ("reschedule", "--by", "1h")])
def test_destination_without_messages_and_without_a_queue_is_a_mistake(
    endpoint: Endpoint,
    due_later: Sequence[str],
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    for more in (("--yes",), ("--dry-run",), ("--yes", "--json")):
        assert run(endpoint, *command, "--destination", "Biling", *REASON, *more) == 2

        printed = capsys.readouterr()
        assert "No waiting message is for the destination 'Biling'" in printed.err + printed.out
        assert "did you mean 'Billing'?" in printed.err + printed.out
    assert endpoint.waiting() == sorted(due_later)


def test_filter_is_repeated_until_its_queue_has_no_message_left(
    endpoint: Endpoint, due_later: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("cancel", "--destination", "Billing", "--yes", *REASON)

    assert [run(endpoint, *asked), run(endpoint, *asked)] == [0, 0]

    printed = capsys.readouterr()
    assert printed.out.endswith(": cancelled 0 messages.\n")
    assert printed.err == "duesweep: no waiting message is for the destination 'Billing'\n"
    assert run(endpoint, *asked, "--json") == 0
    unknown = json.loads(capsys.readouterr().out)["unknown_destination"]
    assert unknown == {"pattern": "Billing", "similar": []}
    assert endpoint.waiting() == [due_later[2]]


def test_filter_finds_the_queues_name_in_an_address(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay(str(endpoint.addresses.parse("Billing")), due_in_seconds=HOUR)

    assert run(endpoint, "cancel", "--destination", "Billing", "--yes", *REASON) == 0

    assert endpoint.waiting() == []
