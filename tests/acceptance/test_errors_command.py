"""`duesweep errors …`: failed messages are replayed once, or discarded.

What lists and errors look like is recorded in tests/golden (`world`).
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from duesweep.core.headers import read_json, remove_forward_destination
from duesweep.core.message import MESSAGE_ID
from duesweep_testing.builders import DelayedRow, delayed_row
from support.commands import NO_JAVA_PACKAGE, WITHOUT_JAVA, Ran
from support.endpoint import Endpoint

NOWHERE = 'There is no queue table "public"."Nowhere"'
ALL = ("errors", "replay", "--all", "--reason", "up")


@pytest.fixture(autouse=True)
def _without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", WITHOUT_JAVA["JAVA_HOME"])
    monkeypatch.syspath_prepend(NO_JAVA_PACKAGE)


def _fail(endpoint: Endpoint, *rows: DelayedRow, **settings: object) -> list[str]:
    """Sweep messages whose queues are missing, so that they are exhausted at once; their keys."""
    due = endpoint.due_in(-60)
    keys = [row.key for row in endpoint.load(replace(row, due=due) for row in rows)]
    assert endpoint.run("sweep", retry__max_attempts=1, **settings).code == 3
    assert endpoint.waiting() == []
    return keys


def _failed(endpoint: Endpoint, *destinations: str) -> list[str]:
    return _fail(endpoint, *map(delayed_row, destinations))


def _open(endpoint: Endpoint, *arguments: str) -> int:
    """How many errors are open."""
    return int(endpoint.document("errors", "list", *arguments)["open"])


def _id(row: DelayedRow) -> str:
    return str(read_json(row.headers)[MESSAGE_ID])


def _sent(rows: Sequence[DelayedRow]) -> list[tuple[str, bytes | None]]:
    """The messages that have to arrive of these rows."""
    return sorted((remove_forward_destination(row.headers), row.body) for row in rows)


def _arrived(endpoint: Endpoint, queue: str) -> list[tuple[str, bytes | None]]:
    return sorted((row.headers, row.body) for row in endpoint.queue_rows(queue))


def test_failed_messages_arrive_once_when_their_queue_is_there(endpoint: Endpoint) -> None:
    endpoint.set_up("Shipping")
    rows = [delayed_row("Billing", body=b"\xff\x00%d" % n) for n in range(5)]
    _fail(endpoint, *rows)
    (group,) = endpoint.document("errors", "list")["groups"]
    endpoint.create_queue("Billing")
    replay = ("errors", "replay", "--group", group["group"], "--reason", "up", "--yes")

    first, second = endpoint.run(*replay), endpoint.run(*replay)

    assert (first.code, first.err, second.code) == (0, "", 0)
    told = ": replayed 5 errors. A sweep delivers them. Command ID "
    assert told in first.out.splitlines()[-1]
    assert endpoint.run("sweep").code == 0
    assert second.out.endswith(": replayed 0 errors.\n")
    assert second.err == "duesweep: 5 errors not replayed: they were replayed or discarded before\n"
    assert _arrived(endpoint, "Billing") == _sent(rows)
    (after,) = endpoint.document("errors", "list")["groups"]
    assert (after["count"], after["open"], after["replayed"]) == (5, 0, 5)


def test_list_of_a_group_has_its_errors(endpoint: Endpoint) -> None:
    endpoint.set_up()
    rows = [delayed_row("Nowhere"), delayed_row("Nowhere"), delayed_row("Billing")]
    keys = _fail(endpoint, *rows)
    group, other = (one["group"] for one in endpoint.document("errors", "list")["groups"])

    document = endpoint.document("errors", "list", "--group", group)

    assert document["errors_in_all"] == 2
    assert {error["key"] for error in document["errors"]} == set(keys[:2])
    assert {error["state"] for error in document["errors"]} == {"open"}
    assert _id(rows[2]) in endpoint.run("errors", "list", "--group", other).out
    missing = endpoint.run("errors", "list", "--group", "00000000")
    assert (missing.code, missing.out) == (2, "")
    assert "There is no error of group 00000000" in missing.err


@pytest.mark.parametrize("words", [["list"], ["replay", "--yes"], ["discard", "--yes"]])
def test_group_without_errors_is_refused_also_with_json(
    words: list[str], endpoint: Endpoint
) -> None:
    _fail(endpoint.set_up(), delayed_row("Nowhere"))
    reason = ["--reason", "x"] if "--yes" in words else []

    refused = endpoint.run("errors", *words, "--group", "00000000", *reason, "--json")

    assert refused.code == refused.document["exit_code"] == 2
    assert "There is no error of group 00000000" in refused.document["error"]


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"]])
def test_replay_to_an_empty_address_is_refused(more: list[str], endpoint: Endpoint) -> None:
    _fail(endpoint.set_up(), delayed_row("Nowhere"))

    refused = endpoint.run("errors", "replay", "--all", "--to", "", "--reason", "x", *more)

    assert (refused.code, "--to is empty" in refused.err) == (2, True)
    assert [one["open"] for one in endpoint.document("errors", "list")["groups"]] == [1]


def test_list_of_a_filter_has_what_fits_all_conditions(endpoint: Endpoint) -> None:
    _failed(endpoint.set_up(), "Nowhere", "Billing")

    assert _open(endpoint, "--destination", "Now*") == 1
    assert _open(endpoint, "--error", "QueueNotFoundError") == 2
    assert _open(endpoint, "--type", "*.CancelOrder", "--since", "-1h") == 2
    assert _open(endpoint, "--until", "-1h") == 0
    assert _open(endpoint, "--since", "+1h") == 0
    cut = endpoint.run("errors", "list", "--limit", "1")
    assert (len(cut.out.splitlines()), cut.err) == (
        2,
        "duesweep: 1 more: raise --limit to see them\n",
    )


def test_no_errors_are_no_fault_and_no_ledger_is(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")

    # With a wrong ledger.root it would seem that nothing has failed.
    missing = endpoint.run("errors", "list")
    assert (missing.code, missing.out) == (2, "")
    assert "There is no ledger at" in missing.err
    assert endpoint.run("sweep").code == 0

    found = endpoint.run("errors", "list")
    assert (found.code, found.err) == (0, "")
    assert ": no message has exhausted its attempts. `duesweep list --failing` " in found.out
    shown = endpoint.run("errors", "show", "nothing")
    assert (shown.code, shown.out, "no error" in shown.err) == (3, "", True)
    document = endpoint.document("errors", "show", "nothing", code=3)
    assert (document["errors"], document["exit_code"]) == ([], 3)


def test_error_without_a_text_is_listed_and_shown(endpoint: Endpoint) -> None:
    """As another program may have changed it."""
    endpoint.set_up()
    (key,) = _failed(endpoint, "Billing")
    DeltaTable(endpoint.folder / "ledger" / "errors").update({"error_text": "NULL"})
    (group,) = endpoint.document("errors", "list")["groups"]

    for words in (("list",), ("list", "--group", group["group"]), ("show", key)):
        ran = endpoint.run("errors", *words)
        assert (ran.code, ran.err) == (0, ""), ran
        assert "Billing" in ran.out


def test_destination_without_errors_and_without_a_queue_is_a_mistake(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    whole = str(endpoint.addresses.parse("Shipping"))
    _failed(endpoint, whole)
    asked = ("--destination", "Shiping")

    listed = endpoint.run("errors", "list", *asked)
    for act in ("replay", "discard"):
        typo = endpoint.run("errors", act, *asked, "--yes", "--reason", "a test")
        assert typo.code == 2
        assert "No error is for the destination 'Shiping', and it has no queue" in typo.err
        assert f"Did you mean {whole!r}?" in typo.err

    assert (listed.code, whole in listed.err) == (0, True)
    # Its queue is there, so a script may ask for it again and again.
    known = endpoint.document("errors", "discard", "--destination", "Billing", "--yes")
    assert known["unknown_destination"]["similar"] == []
    found = endpoint.run("errors", "discard", "--destination", "Shipping", "--yes")
    assert found.out.splitlines()[-1].split(". ")[0].endswith(": discarded 1 error")


def test_show_has_headers_body_stack_and_what_was_done(endpoint: Endpoint) -> None:
    endpoint.set_up("Shipping")
    row = delayed_row("Nowhere", body=b'{"a":"%s\x1b[2J"}' % (b"x" * 99), more={"x\x1b": "y\x1bz"})
    (key,) = _fail(endpoint, row)
    assert endpoint.run("errors", "replay", key, "--to", "Shipping", "--reason", "test").code == 0

    shown = endpoint.run("errors", "show", _id(row))

    assert (shown.code, shown.err) == (0, "")
    assert "\x1b" not in shown.out
    for text in (
        *(key, "duesweep.errors.QueueNotFoundError: There is no queue table"),
        *("replayed into the store as ", ": test", r"y\x1bz", r'x\x1b[2J"}'),
        "Traceback (most recent call last):",
    ):
        assert text in shown.out
    (error,) = endpoint.document("errors", "show", key)["errors"]
    assert base64.b64decode(error["body"]) == row.body
    assert (error["headers_text"], error["state"]) == (row.headers, "replayed")
    assert error["changes"][0]["reason"] == "test"


def test_one_error_needs_no_question_and_is_not_replayed_twice(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    row = delayed_row("Nowhere")
    key, _ = _fail(endpoint, row, delayed_row("Elsewhere"))

    first = endpoint.run("errors", "replay", _id(row), "--to", "Billing")
    second = endpoint.run("errors", "replay", key, "--to", "Billing", "--json")
    third = endpoint.document("errors", "replay", key, "--to", "Billing", "--again")

    assert (first.code, first.err) == (0, "")
    assert (second.code, second.document["changed"], second.document["gone"]) == (3, 0, 1)
    assert f"{key} was replayed on " in second.err
    assert "--again" in second.err
    assert third["changed"] == 1
    assert endpoint.run("sweep").code == 0
    assert _arrived(endpoint, "Billing") == _sent([row, row])


def test_replay_to_a_paused_destination_waits_in_the_store(endpoint: Endpoint) -> None:
    endpoint.set_up("Shipping")
    row = delayed_row("Billing")
    _fail(endpoint, row)
    endpoint.create_queue("Billing")
    assert endpoint.run("pause", "Billing", "--reason", "it rests").code == 0

    assert endpoint.document(*ALL, "--yes")["changed"] == 1

    assert endpoint.document("sweep")["dispatched"] == 0
    assert (len(endpoint.waiting()), endpoint.queue_rows("Billing")) == (1, [])
    assert endpoint.run("resume", "Billing").code == 0
    assert endpoint.document("sweep")["dispatched"] == 1
    assert _arrived(endpoint, "Billing") == _sent([row])


def test_replay_that_is_not_possible_leaves_errors_open(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    rows = [delayed_row("Nowhere"), delayed_row("Later"), DelayedRow(headers="{broken")]
    keys = _fail(endpoint, *rows)
    endpoint.create_queue("Later")

    done = endpoint.run(*ALL, "--yes", "--json")

    assert (done.code, done.document["changed"], done.document["refused"]) == (3, 1, 2)
    assert {failure["key"] for failure in done.document["failures"]} == {keys[0], keys[2]}
    assert NOWHERE in done.err
    assert endpoint.run(*ALL, "--yes", "--to", "Nowere").code == 3
    assert _open(endpoint) == 2
    endpoint.create_queue("Nowhere")
    assert endpoint.document(*ALL, "--yes", code=3)["changed"] == 1
    assert endpoint.run("sweep").code == 0
    assert _arrived(endpoint, "Later") == _sent(rows[1:2])
    assert _arrived(endpoint, "Nowhere") == _sent(rows[:1])


def test_message_that_fails_again_is_a_new_error(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    _failed(endpoint, "Later")
    endpoint.create_queue("Later")
    assert endpoint.document(*ALL, "--yes")["changed"] == 1
    endpoint.execute('DROP TABLE "Later"')

    assert endpoint.run("sweep", retry__max_attempts=1).code == 3

    (group,) = endpoint.document("errors", "list")["groups"]
    assert (group["count"], group["open"], group["replayed"]) == (2, 1, 1)
    endpoint.create_queue("Later")
    again = endpoint.document(*ALL, "--yes", "--again")
    assert (again["changed"], again["gone"]) == (1, 1)
    assert len(endpoint.waiting()) == 1


def test_error_whose_queue_is_out_of_reach_waits_in_the_store(endpoint: Endpoint) -> None:
    row = delayed_row("Nowhere")
    _fail(endpoint.set_up("Billing"), row)
    away = endpoint.having(queues__default__dsn="postgresql://postgres@127.0.0.1:1/nsb")

    assert away.document(*ALL, "--yes")["changed"] == 1

    assert len(endpoint.waiting()) == 1
    endpoint.create_queue("Nowhere")
    assert endpoint.run("sweep").code == 0
    assert _arrived(endpoint, "Nowhere") == _sent([row])


def test_message_is_put_back_as_it_was_and_swept_when_it_is_due(endpoint: Endpoint) -> None:
    endpoint.set_up("Shipping")
    row = delayed_row("Billing")
    (key,) = _fail(endpoint, row)
    endpoint.create_queue("Billing")

    assert endpoint.run("errors", "replay", key, "--due", "now").code == 0

    (stored,) = endpoint.fetch(f"SELECT headers, body FROM {endpoint.delayed}")
    assert (stored.headers, stored.body) == (row.headers, row.body)
    assert endpoint.run("sweep").code == 0
    assert _arrived(endpoint, "Billing") == _sent([row])
    assert endpoint.run("errors", "replay", key).code == 3
    (error,) = endpoint.document("errors", "show", key)["errors"]
    assert error["changes"][0]["new_key"] is not None


def test_discarded_errors_are_left_out_unless_they_are_asked_for(endpoint: Endpoint) -> None:
    key, _ = _failed(endpoint.set_up("Billing"), "Nowhere", "Nowhere")

    one = endpoint.run("errors", "discard", key)
    rest = endpoint.run("errors", "discard", "--all", "--yes")

    assert (one.code, one.err, rest.code) == (0, "", 0)
    assert endpoint.document("errors", "list")["groups"] == []
    (group,) = endpoint.document("errors", "list", "--discarded")["groups"]
    assert (group["open"], group["discarded"]) == (0, 2)
    again = endpoint.run("errors", "replay", key, "--to", "Billing")
    assert (again.code, endpoint.waiting()) == (3, [])
    assert f"{key} was discarded" in again.err


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_unclear_command_changes_nothing(command: str, endpoint: Endpoint) -> None:
    _failed(endpoint.set_up("Billing"), "Nowhere", "Nowhere")
    refused = {
        ("--yes", "--reason", "up"): "no errors are selected",
        ("--all", "--destination", "*"): "all errors are selected, and also some",
        ("--all", "--yes"): "No reason is given",
        ("--all", "--yes", "--reason", " "): "No reason is given",
        ("--all", "--reason", "up"): "there is no terminal",
    }

    for arguments, sentence in refused.items():
        done = endpoint.run("errors", command, *arguments)
        assert (done.code, sentence in done.err) == (2, True), done.err
    assert _open(endpoint) == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_person_at_the_terminal_is_asked(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failed(endpoint.set_up("Billing"), "Nowhere", "Nowhere")

    def answer(text: str) -> Ran:
        monkeypatch.setattr("sys.stdin", _Terminal(text))
        return endpoint.run(*ALL, "--to", "Billing")

    for no in ("n\n", "\n", ""):
        assert answer(no).code == 3
        assert endpoint.waiting() == []
    monkeypatch.setattr("sys.stdin", _Terminal("y\n"))
    quiet = endpoint.run(*ALL, "--to", "Billing", "--quiet")
    assert (quiet.code, endpoint.waiting()) == (2, [])
    assert "there is no terminal" in quiet.err
    done = answer("y\n")
    assert (done.code, len(endpoint.waiting())) == (0, 2)
    assert "Replay 2 errors? [y/N]" in done.err


def test_errors_of_another_source_are_not_touched(endpoint: Endpoint) -> None:
    (key,) = _failed(endpoint.set_up("Billing"), "Nowhere")
    other = endpoint.having(store__name="another")

    assert other.document("errors", "list")["groups"] == []
    assert other.run("errors", "replay", key, "--to", "Billing").code == 3
    assert endpoint.waiting() == []
