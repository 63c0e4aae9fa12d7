"""The commands `cancel`, `reschedule` and `restore`: their refusals, and the messages that they
leave and settle.

Their output and changes on an ordinary day are recorded in tests/golden (`world`).
"""

import os
import re
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import psycopg
import pytest

from duesweep.cli import commands
from duesweep.core.errors import LedgerError
from duesweep.core.message import MESSAGE_ID
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep_testing.builders import headers_text
from support.commands import Ran
from support.endpoint import Endpoint
from support.sweeps import run_sweep
from support.waiting import until

HOUR = 3_600
REASON = ("--reason", "a test")
BILLING = ("cancel", "--destination", "Billing", "--yes", *REASON)
NOBODYS = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def due_later(endpoint: Endpoint) -> list[str]:
    """Two messages for Billing and one for Shipping, due in an hour."""
    endpoint.set_up("Billing", "Shipping")
    billing = endpoint.delay_many(2, ["Billing"], due_in_seconds=HOUR)
    return [*billing, endpoint.delay("Shipping", due_in_seconds=HOUR)]


def command_id(ran: Ran) -> str:
    found = re.search(r"(?:--command |`changes`: )([0-9a-f-]{36})", ran.out)
    assert found is not None
    return found[1]


@pytest.mark.usefixtures("due_later")
def test_store_whose_tasks_know_batches_only_changes_messages_nevertheless(
    endpoint: Endpoint,
) -> None:
    custom = {
        "store__kind": "support.acme_stores:BatchesStore",
        "queues__default__kind": "postgresql",
    }

    ran = endpoint.run(*BILLING, **custom)

    assert (ran.code, ran.err) == (0, "")
    assert len(endpoint.waiting()) == 1


@pytest.mark.parametrize(
    ("chosen", "left"), [(("--destination", "Bill*"), slice(2, 3)), (("--all",), slice(0, 0))]
)
def test_filter_cancels_what_it_means_and_nothing_else(
    endpoint: Endpoint, due_later: list[str], chosen: tuple[str, ...], left: slice
) -> None:
    assert endpoint.run("cancel", *chosen, "--yes", *REASON).code == 0

    assert endpoint.waiting() == due_later[left]
    changed = {row.message_key for row in endpoint.ledger.rows("changes")}
    assert changed == set(due_later) - set(due_later[left])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Give keys or a filter, or --all"),
        (("--all", "--destination", "B*"), "all messages are selected, and also some"),
        (("--destination", "B*", *REASON), "there is no terminal"),
        (("--destination", "B*", "--yes"), "Add --reason TEXT"),
        (("--all", *REASON), "there is no terminal"),
        (("--type", "*", "--scan-limit", "1", "--yes", *REASON), "raise --scan-limit"),
    ],
)
def test_unclear_command_changes_nothing(
    endpoint: Endpoint, due_later: list[str], arguments: tuple[str, ...], sentence: str
) -> None:
    for command in (["cancel"], ["reschedule", "--to", "+1h"]):
        ran = endpoint.run(*command, *arguments)

        assert (ran.code, sentence in ran.err) == (2, True)
    assert endpoint.waiting() == sorted(due_later)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("restore",), "`restore`: no messages are selected"),
        (("restore", "--command", "x"), "'x' is not the id of a command"),
        (("reschedule", NOBODYS), "needs either --to or --by"),
        (("reschedule", NOBODYS, "--to", "+1h", "--by", "1h"), "needs either --to or --by"),
    ],
)
def test_unclear_restore_or_new_time_is_refused(
    endpoint: Endpoint, arguments: tuple[str, ...], sentence: str
) -> None:
    ran = endpoint.set_up("Billing").run(*arguments)

    assert (ran.code, sentence in ran.err) == (2, True)


@pytest.mark.parametrize("asked", [("--message-id", "gone"), (NOBODYS,)], ids=["id", "key"])
def test_message_that_nobody_has_is_told_beside_one_that_is_there(
    asked: tuple[str, ...], endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    text = headers_text("Billing", {MESSAGE_ID: "there"})
    first, second = (endpoint.delay(headers=text, due_in_seconds=HOUR) for _ in range(2))
    known = ("--message-id", "there") if len(asked) > 1 else (first, second)

    document = endpoint.document("cancel", *known, *asked, *REASON, code=3)

    assert (document["changed"], document["gone"], endpoint.waiting()) == (2, 1, [])
    alone = endpoint.run("cancel", *asked)
    assert alone.code == 3
    assert "1 message not cancelled: not in the store" in alone.err


@pytest.mark.parametrize(
    "spell",
    [str.upper, lambda key: f"{{{key}}}", lambda key: key.replace("-", "")],
    ids=["capitals", "braces", "no hyphens"],
)
def test_key_may_be_spelled_as_other_tools_show_it(
    spell: Callable[[str], str], endpoint: Endpoint
) -> None:
    key = spell(endpoint.set_up("Billing").delay("Billing", due_in_seconds=HOUR))

    assert endpoint.run("show", key).code == endpoint.run("cancel", key).code == 0
    assert endpoint.waiting() == []
    shown = endpoint.run("show", key)
    assert (shown.code, "cancelled" in shown.out) == (0, True)
    assert endpoint.run("restore", key).code == 0
    assert len(endpoint.waiting()) == 1


def test_message_that_is_due_after_all_of_pythons_years_can_be_changed(endpoint: Endpoint) -> None:
    first, second = endpoint.set_up("Billing").delay_many(2, due_in_seconds=HOUR)
    endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '294276-12-31 12:00:00+00'")

    assert endpoint.run("cancel", first).code == 0
    assert endpoint.run("reschedule", second, "--to", "now").code == 0

    assert run_sweep(endpoint).dispatched == 1


# Each Due, and the Due of its restored message: the nearest that the journal can hold.
_STRANGE_DUES = {
    "-infinity": "4713-01-01 00:00:00+00 BC",
    "4713-01-01 00:00:00+00 BC": "4713-01-01 00:00:00+00 BC",
    "0044-03-15 12:00:00.000001+00 BC": "0044-03-15 12:00:00.000001+00 BC",
    "0001-01-01 00:00:00+00": "0001-01-01 00:00:00+00",
    "9999-12-31 23:59:59.999999+00": "9999-12-31 23:59:59.999999+00",
    "10000-01-01 00:00:00+00": "10000-01-01 00:00:00+00",
    "12400-02-29 08:00:00.5+00": "12400-02-29 08:00:00.5+00",
    "294276-12-31 12:00:00+00": "290000-01-01 00:00:00+00",
    "infinity": "290000-01-01 00:00:00+00",
}


def test_messages_of_all_dues_are_shown_and_restored_by_one_command(endpoint: Endpoint) -> None:
    keys = endpoint.set_up("Billing").delay_many(len(_STRANGE_DUES) + 1, due_in_seconds=HOUR)
    for key, due in zip(keys, _STRANGE_DUES, strict=False):
        endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '{due}' WHERE id = '{key}'")
    before = _dues(endpoint)
    cancelled = command_id(endpoint.run("cancel", "--all", "--yes", *REASON))
    assert endpoint.waiting() == []

    shown = [endpoint.run("show", key) for key in keys]
    ran = endpoint.run("restore", "--command", cancelled, "--yes", *REASON)

    assert [(one.code, "cancelled" in one.out) for one in shown] == [(0, True)] * len(keys)
    assert (ran.code, "restored 10 messages" in ran.out) == (0, True)
    (usual,) = before - set(_STRANGE_DUES)
    assert _dues(endpoint) == {*_STRANGE_DUES.values(), usual}
    assert endpoint.run("audit").code == 0


def test_message_without_a_due_is_left_and_the_others_are_restored(endpoint: Endpoint) -> None:
    keys = endpoint.set_up("Billing").delay_many(3, due_in_seconds=HOUR)
    endpoint.execute(f"ALTER TABLE {endpoint.delayed} ALTER due DROP NOT NULL")
    endpoint.execute(f"UPDATE {endpoint.delayed} SET due = NULL WHERE id = '{keys[0]}'")
    cancelled = command_id(endpoint.run("cancel", *keys, *REASON))

    ran = endpoint.run("restore", "--command", cancelled, "--yes", "--json", *REASON)

    assert (ran.code, len(endpoint.waiting())) == (3, 2)
    assert f"{keys[0]} was not restored: it had no Due; set one with --to" in ran.err
    assert ran.document["failures"][0]["key"] == keys[0]
    assert endpoint.run("restore", keys[0], "--to", "+1h").code == 0
    assert len(endpoint.waiting()) == 3


@pytest.mark.parametrize(("due", "code"), [("10000-01-02", 0), ("10001-01-01", 3), ("infinity", 3)])
def test_due_outside_of_pythons_years_moves_by_a_time_where_that_leads_into_them(
    due: str, code: int, endpoint: Endpoint
) -> None:
    far, usual = endpoint.set_up("Billing").delay_many(2, due_in_seconds=HOUR)
    endpoint.execute(f"UPDATE {endpoint.delayed} SET due = '{due}' WHERE id = '{far}'")

    ran = endpoint.run("reschedule", far, usual, "--by", "-2d", *REASON)

    assert ran.code == code
    assert ("set one with --to" in ran.err) == (code == 3)
    assert all(endpoint.run("show", key).code == 0 for key in (far, usual))
    assert endpoint.run("reschedule", far, "--to", "now").code == 0
    assert endpoint.run("show", far).code == 0


def _dues(endpoint: Endpoint) -> set[str]:
    found = endpoint.fetch(f"SELECT due::text FROM {endpoint.delayed}")
    return {due for (due,) in found}


def test_row_that_another_session_holds_stays_and_is_told(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    with psycopg.connect(endpoint.dsn) as other:
        other.execute(f"SELECT FROM {endpoint.delayed} WHERE id = %s FOR UPDATE", [due_later[0]])

        document = endpoint.document("cancel", *due_later, *REASON, code=3)

    assert (document["changed"], document["held"], document["gone"]) == (2, 1, 0)
    assert (document["exit_code"], document["command"]) == (3, "cancel")
    assert endpoint.waiting() == [due_later[0]]


@pytest.mark.usefixtures("_ctrl_c")
def test_command_that_is_stopped_ends_after_the_batch_in_hand_and_says_so(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    def interrupt(other: psycopg.Connection) -> None:
        until(lambda: endpoint.fetch("SELECT FROM pg_locks WHERE NOT granted"))
        os.kill(os.getpid(), signal.SIGINT)
        other.rollback()

    with psycopg.connect(endpoint.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute(f"LOCK TABLE {endpoint.own_table('changes')}")
        interrupted = pool.submit(interrupt, other)
        document = endpoint.document("cancel", *due_later, *REASON, code=3, sweep__batch_rows=1)
        interrupted.result()

    assert (document["changed"], document["is_stopped"]) == (1, True)
    assert len(endpoint.waiting()) == 2


def test_message_that_was_rescheduled_while_the_question_was_asked_stays(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, due_later: list[str]
) -> None:
    def confirm(_: str) -> bool:
        endpoint.execute(
            f"UPDATE {endpoint.delayed} SET due = due + interval '1 day' WHERE id = '{first}'"
        )
        return True

    first = due_later[0]
    monkeypatch.setattr(commands, "confirm", confirm)

    ran = endpoint.run("cancel", "--due-before", "+2h", *REASON)

    assert (ran.code, endpoint.waiting()) == (3, [first])
    assert "cancelled 2 messages" in ran.out


def test_message_is_restored_once_unless_again_is_asked_for(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    restore = ("restore", due_later[2])
    assert endpoint.run("cancel", due_later[2]).code == 0

    first, second = endpoint.run(*restore), endpoint.run(*restore)

    assert (first.code, second.code, len(endpoint.waiting())) == (0, 3, 3)
    assert "it was restored already (see --again)" in second.err
    assert endpoint.run(*restore, "--again").code == 0
    assert len(endpoint.waiting()) == 4


@pytest.mark.usefixtures("due_later")
def test_all_that_a_command_cancelled_is_restored_with_a_new_due(endpoint: Endpoint) -> None:
    # As other tools write it.
    command = command_id(endpoint.run(*BILLING)).upper()
    restore = ("restore", "--command", command, "--yes", *REASON)
    before = datetime.now(UTC)

    assert endpoint.run(*restore, "--to", "now").code == 0

    report = run_sweep(endpoint)
    assert report.dispatched == 2
    assert report.horizon >= before
    assert endpoint.run(*restore).code == 3


def test_message_that_the_table_refuses_is_told_and_the_others_are_restored(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    cancelled = command_id(endpoint.run("cancel", *due_later, *REASON))
    endpoint.execute(f"ALTER TABLE {endpoint.delayed} ADD CHECK (headers NOT LIKE '%Shipping%')")

    ran = endpoint.run("restore", "--command", cancelled, "--yes", *REASON)

    assert (ran.code, len(endpoint.waiting())) == (3, 2)
    assert "restored 2 messages" in ran.out
    assert f"{due_later[2]} was not restored" in ran.err
    assert "violates check constraint" in ran.err


def test_message_that_a_trigger_drops_is_told_and_the_others_are_restored(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    cancelled = command_id(endpoint.run("cancel", *due_later, *REASON))
    endpoint.execute(
        "CREATE FUNCTION dropped() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " IF NEW.headers LIKE '%Shipping%' THEN RETURN NULL; END IF; RETURN NEW; END$$;"
        f" CREATE TRIGGER dropped BEFORE INSERT ON {endpoint.delayed}"
        " FOR EACH ROW EXECUTE FUNCTION dropped()"
    )

    ran = endpoint.run("restore", "--command", cancelled, "--yes", *REASON)

    assert (ran.code, len(endpoint.waiting())) == (3, 2)
    assert "restored 2 messages" in ran.out
    assert f"{due_later[2]} was not restored: The delayed table took 0 of 1 rows" in ran.err
    assert endpoint.document("audit")["findings"] == []


def test_no_is_a_document_too(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, due_later: list[str]
) -> None:
    monkeypatch.setattr(commands, "confirm", lambda _: False)

    document = endpoint.document("cancel", "--destination", "Billing", *REASON, code=3)

    assert document == {"exit_code": 3, "error": "nothing was changed"}
    assert endpoint.waiting() == sorted(due_later)


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_at_the_question_of_restore_ends_it_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, due_later: list[str]
) -> None:
    cancelled = command_id(endpoint.run("cancel", *due_later, *REASON))
    monkeypatch.setattr(commands, "confirm", lambda _: signal.raise_signal(signal.SIGINT) or True)

    assert endpoint.run("restore", "--command", cancelled, *REASON).code == 130

    assert endpoint.waiting() == []


def test_command_whose_ledger_fails_is_settled_by_the_next_sweep(
    endpoint: Endpoint, due_later: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_sweep(endpoint).outcome == "done"

    def fail(*_: object) -> None:
        raise LedgerError("The disk is full", transient=True)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaRsTables, "write", fail)
        document = endpoint.document("cancel", due_later[0], code=4)
    assert (document["changed"], document["ledger_error"]) == (1, "The disk is full")
    assert endpoint.waiting() == sorted(due_later[1:])

    assert endpoint.run("sweep").code == 0

    assert [row.message_key for row in endpoint.ledger.rows("changes")] == [due_later[0]]
    assert [row.outcome for row in endpoint.ledger.rows("tombstones")] == ["cancelled"]


@pytest.mark.parametrize(
    ("lost", "command", "of", "sentence"),
    [
        (".", "cancel", 1, "but no ledger is at"),
        ("changes", "restore", 0, "has lost the table changes"),
    ],
)
def test_ledger_that_is_gone_or_has_lost_its_changes_lets_no_command_begin(
    lost: str, command: str, of: int, sentence: str, endpoint: Endpoint, due_later: list[str]
) -> None:
    assert endpoint.run("cancel", due_later[0]).code == 0
    (endpoint.ledger.root / lost).rename(endpoint.folder / "away")

    ran = endpoint.run(command, due_later[of])

    assert (ran.code, sentence in ran.err) == (2, True)
    assert endpoint.waiting() == sorted(due_later[1:])


def test_store_that_lacks_a_table_asks_for_setup_and_then_goes_on(
    endpoint: Endpoint, due_later: list[str]
) -> None:
    assert run_sweep(endpoint).outcome == "done"
    endpoint.execute("DROP TABLE duesweep_changes")
    refused = (["sweep"], ["cancel", due_later[0]])
    for ran in [endpoint.run(*command) for command in refused]:
        assert (ran.code, "Run the command `setup`" in ran.err) == (2, True)

    assert endpoint.run("setup").code == 0

    assert [endpoint.run(*command).code for command in reversed(refused)] == [0, 0]


@pytest.mark.parametrize("command", [("cancel",), ("reschedule", "--by", "1h")])
def test_destination_without_messages_and_without_a_queue_is_a_mistake(
    endpoint: Endpoint, due_later: list[str], command: tuple[str, ...]
) -> None:
    for more in (("--yes",), ("--dry-run",), ("--yes", "--json")):
        ran = endpoint.run(*command, "--destination", "Biling", *REASON, *more)

        assert ran.code == 2
        assert "No waiting message is for the destination 'Biling'" in ran.told
        assert "Did you mean 'Billing'?" in ran.told
    assert endpoint.waiting() == sorted(due_later)


def test_filter_is_repeated_until_its_queue_has_no_message_left(
    endpoint: Endpoint, due_later: Sequence[str]
) -> None:
    assert endpoint.run(*BILLING).code == 0
    again = endpoint.run(*BILLING)

    assert again.code == 0
    assert again.out.endswith(": cancelled 0 messages.\n")
    assert again.err == "duesweep: no waiting message is for the destination 'Billing'\n"
    unknown = endpoint.document(*BILLING)["unknown_destination"]
    assert unknown == {"pattern": "Billing", "similar": []}
    assert endpoint.waiting() == [due_later[2]]


def test_filter_finds_the_queues_name_in_an_address(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay(str(endpoint.addresses.parse("Billing")), due_in_seconds=HOUR)

    assert endpoint.run(*BILLING).code == 0

    assert endpoint.waiting() == []
