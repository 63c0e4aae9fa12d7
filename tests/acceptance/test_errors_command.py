"""`duesweep errors …`: what failed is listed, replayed once, put back or discarded."""

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from duesweep.cli.app import main
from duesweep.core.headers import json as headers_json
from duesweep.core.message import MESSAGE_ID
from duesweep_testing.builders import MESSAGE_TYPE, DelayedRow, delayed_row
from support.endpoint import Endpoint


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Duesweep = Callable[..., Run]


@pytest.fixture
def duesweep(
    endpoint: Endpoint, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Duesweep:
    """Runs a command in this process, on the endpoint; Java is out of reach."""
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")

    def run(*arguments: str) -> Run:
        file = endpoint.folder / "duesweep.toml"
        capsys.readouterr()
        code = main([*arguments, "--config", str(file)])
        return Run(code, *capsys.readouterr())

    return run


def _fail(endpoint: Endpoint, duesweep: Duesweep, *rows: DelayedRow, **overrides: Any) -> list[str]:
    """Sweep messages whose queues are missing, so that they are exhausted at once; their keys."""
    endpoint.config_file(retry__max_attempts=1, **overrides)
    due = endpoint.due_in(-60)
    keys = [row.key for row in endpoint.load(replace(row, due=due) for row in rows)]
    assert duesweep("sweep").code == 3
    assert endpoint.waiting() == []
    return keys


def _id(row: DelayedRow) -> str:
    return str(headers_json.read(row.headers)[MESSAGE_ID])


def _sent(rows: Sequence[DelayedRow]) -> list[tuple[str, bytes | None]]:
    """What has to arrive of these rows."""
    return sorted((headers_json.remove_forward_destination(row.headers), row.body) for row in rows)


def _arrived(endpoint: Endpoint, queue: str) -> list[tuple[str, bytes | None]]:
    return sorted((row.headers, row.body) for row in endpoint.queue_rows(queue))


def test_failed_messages_arrive_once_when_their_queue_is_there(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Shipping")
    rows = [delayed_row("Billing", body=b"\xff\x00%d" % n) for n in range(5)]
    _fail(endpoint, duesweep, *rows)
    (group,) = duesweep("errors", "list", "--json").document["groups"]
    endpoint.create_queue("Billing")
    replay = ("errors", "replay", "--group", group["group"], "--reason", "up", "--yes")

    first, second = duesweep(*replay), duesweep(*replay)

    assert (first.code, first.err) == (0, "")
    assert ": replayed 5 errors, command " in first.out.splitlines()[-1]
    assert second.code == 0
    assert second.out.endswith(": replayed 0 errors.\n")
    assert second.err == "duesweep: left out 5 errors: replayed or discarded before\n"
    assert _arrived(endpoint, "Billing") == _sent(rows)
    (after,) = duesweep("errors", "list", "--json").document["groups"]
    assert (after["count"], after["open"], after["replayed"]) == (5, 0, 5)


def test_list_groups_errors_by_class_destination_and_type(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up()
    broken = DelayedRow(headers="{broken")
    nowhere = [delayed_row("Nowhere"), delayed_row("Nowhere")]
    keys = _fail(endpoint, duesweep, *nowhere, delayed_row("Billing"), broken)

    document = duesweep("errors", "list", "--json").document

    first, *others = document["groups"]
    assert (document["groups_in_all"], document["open"]) == (3, 4)
    shown = {"error_class", "destination", "message_type", "count", "open", "replayed", "discarded"}
    assert {name: value for name, value in first.items() if name in shown} == {
        "error_class": "duesweep.errors.QueueNotFoundError",
        "destination": "Nowhere",
        "message_type": MESSAGE_TYPE,
        "count": 2,
        "open": 2,
        "replayed": 0,
        "discarded": 0,
    }
    assert first["example"]["key"] in keys[:2]
    assert first["example"]["error_text"] == 'There is no queue table "public"."Nowhere"'
    assert first["first_failed_at"] <= first["last_failed_at"]
    assert {group["destination"] for group in others} == {"Billing", None}
    text = duesweep("errors", "list", "--limit", "1")
    assert text.out.splitlines()[1].split()[:4] == [first["group"], "2", "0", "0"]
    assert (len(text.out.splitlines()), text.err) == (
        2,
        "duesweep: 2 more, which --limit shows\n",
    )


def test_list_of_a_group_has_its_errors(endpoint: Endpoint, duesweep: Duesweep) -> None:
    endpoint.set_up()
    rows = [delayed_row("Nowhere"), delayed_row("Nowhere"), delayed_row("Billing")]
    keys = _fail(endpoint, duesweep, *rows)
    group, other = duesweep("errors", "list", "--json").document["groups"]

    document = duesweep("errors", "list", "--group", group["group"], "--json").document

    assert document["errors_in_all"] == 2
    assert {error["key"] for error in document["errors"]} == set(keys[:2])
    assert {error["state"] for error in document["errors"]} == {"open"}
    text = duesweep("errors", "list", "--group", other["group"]).out
    assert _id(rows[2]) in text
    missing = duesweep("errors", "list", "--group", "00000000")
    assert (missing.code, missing.out) == (2, "")
    assert "There is no error of group 00000000" in missing.err


def test_list_of_a_filter_has_what_fits_all_conditions(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up()
    _fail(endpoint, duesweep, delayed_row("Nowhere"), delayed_row("Billing"))

    def count(*arguments: str) -> int:
        return int(duesweep("errors", "list", "--json", *arguments).document["open"])

    assert count("--destination", "Now*") == 1
    assert count("--error", "QueueNotFoundError") == 2
    assert count("--type", "*.CancelOrder", "--since", "-1h") == 2
    assert count("--until", "-1h") == 0
    assert count("--since", "+1h") == 0


def test_no_errors_are_no_fault_and_no_ledger_is(endpoint: Endpoint, duesweep: Duesweep) -> None:
    endpoint.set_up("Billing")
    endpoint.config_file()

    # With a wrong ledger.root it would seem that nothing has failed.
    missing = duesweep("errors", "list")
    assert (missing.code, missing.out) == (2, "")
    assert "There is no ledger at" in missing.err
    endpoint.delay("Billing")
    assert duesweep("sweep").code == 0

    found = duesweep("errors", "list")
    assert (found.code, found.err) == (0, "")
    assert ": no message has exhausted its attempts. `duesweep list --failing` " in found.out


def test_destination_without_errors_and_without_a_queue_is_a_mistake(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    whole = str(endpoint.addresses.parse("Shipping"))
    _fail(endpoint, duesweep, delayed_row(whole))
    asked = ("--destination", "Shiping")

    listed = duesweep("errors", "list", *asked)
    for act in ("replay", "discard"):
        typo = duesweep("errors", act, *asked, "--yes", "--reason", "a test")
        assert typo.code == 2
        assert "No error is for the destination 'Shiping', and it has no queue" in typo.err
        assert f"did you mean {whole!r}?" in typo.err

    assert (listed.code, whole in listed.err) == (0, True)
    # Its queue is there, so a script may ask for it again and again.
    known = duesweep("errors", "discard", "--destination", "Billing", "--yes", "--json")
    assert (known.code, known.document["unknown_destination"]["similar"]) == (0, [])
    found = duesweep("errors", "discard", "--destination", "Shipping", "--yes")
    assert found.out.splitlines()[-1].split(",")[0].endswith(": discarded 1 error")


def test_show_has_headers_body_stack_and_what_was_done(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Shipping")
    row = delayed_row("Nowhere", body=b'{"a":"%s\x1b[2J"}' % (b"x" * 99), more={"x\x1b": "y\x1bz"})
    (key,) = _fail(endpoint, duesweep, row)
    assert duesweep("errors", "replay", key, "--to", "Shipping", "--reason", "test").code == 0

    shown = duesweep("errors", "show", _id(row))

    assert (shown.code, shown.err) == (0, "")
    assert "\x1b" not in shown.out
    for text in (
        key,
        "duesweep.errors.QueueNotFoundError: There is no queue table",
        'replayed to "public"."Shipping" on ',
        ": test",
        r"y\x1bz",
        r'x\x1b[2J"}',
        "Traceback (most recent call last):",
    ):
        assert text in shown.out
    (error,) = duesweep("errors", "show", key, "--json").document["errors"]
    assert base64.b64decode(error["body"]) == row.body
    assert (error["headers_text"], error["state"]) == (row.headers, "replayed")
    assert error["changes"][0]["reason"] == "test"


def test_show_of_headers_that_cannot_be_read_has_their_text(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up()
    (key,) = _fail(endpoint, duesweep, DelayedRow(headers="{broken", body=None))

    shown = duesweep("errors", "show", key)

    assert shown.code == 0
    assert "headers:\n{broken\n\nno body\n" in shown.out


def test_show_of_an_unknown_id_fails(endpoint: Endpoint, duesweep: Duesweep) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    endpoint.config_file()
    assert duesweep("sweep").code == 0

    shown = duesweep("errors", "show", "nothing")

    assert (shown.code, shown.out) == (3, "")
    assert "no error" in shown.err
    shown = duesweep("errors", "show", "nothing", "--json")
    assert (shown.document["errors"], shown.document["exit_code"]) == ([], 3)


def test_one_error_needs_no_question_and_is_not_replayed_twice(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    row = delayed_row("Nowhere")
    (key,) = _fail(endpoint, duesweep, row, delayed_row("Elsewhere"))[:1]

    first = duesweep("errors", "replay", _id(row), "--to", "Billing")
    second = duesweep("errors", "replay", key, "--to", "Billing", "--json")
    third = duesweep("errors", "replay", key, "--to", "Billing", "--again", "--json")

    assert (first.code, first.err) == (0, "")
    assert (second.code, second.document["replayed"], second.document["done_before"]) == (3, 0, 1)
    assert f"{key} was replayed to " in second.err
    assert "--again" in second.err
    assert (third.code, third.document["replayed"]) == (0, 1)
    assert _arrived(endpoint, "Billing") == _sent([row, row])


def test_replay_to_a_paused_destination_leaves_errors_open(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Shipping")
    rows = [delayed_row("Billing"), delayed_row("Nowhere")]
    _fail(endpoint, duesweep, *rows)
    endpoint.create_queue("Billing")
    assert duesweep("pause", "Billing", "--reason", "it rests").code == 0
    replay = ("errors", "replay", "--destination", "Billing", "--yes", "--json")

    held = duesweep(*replay)

    assert (held.code, held.document["replayed"], held.document["failed"]) == (3, 0, 1)
    assert "paused" in held.err
    assert duesweep("errors", "list", "--json").document["open"] == 2
    assert duesweep("resume", "Billing").code == 0
    assert duesweep(*replay).document["replayed"] == 1
    assert _arrived(endpoint, "Billing") == _sent(rows[:1])


def test_replay_that_is_not_possible_leaves_errors_open(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    rows = [delayed_row("Nowhere"), delayed_row("Later"), DelayedRow(headers="{broken")]
    keys = _fail(endpoint, duesweep, *rows)
    endpoint.create_queue("Later")
    everything = ("errors", "replay", "--all", "--reason", "up", "--yes", "--json")

    done = duesweep(*everything)

    assert (done.code, done.document["replayed"], done.document["failed"]) == (3, 1, 2)
    assert {failure["key"] for failure in done.document["failures"]} == {keys[0], keys[2]}
    assert 'There is no queue table "public"."Nowhere"' in done.err
    assert duesweep("errors", "list", "--json").document["open"] == 2
    endpoint.create_queue("Nowhere")
    assert duesweep(*everything).document["replayed"] == 1
    assert _arrived(endpoint, "Later") == _sent(rows[1:2])
    assert _arrived(endpoint, "Nowhere") == _sent(rows[:1])


def test_message_is_put_back_as_it_was_and_swept_when_it_is_due(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Shipping")
    row = delayed_row("Billing")
    (key,) = _fail(endpoint, duesweep, row)
    endpoint.create_queue("Billing")

    assert duesweep("errors", "replay", key, "--due", "now").code == 0

    (stored,) = endpoint.fetch(f"SELECT headers, body FROM {endpoint.delayed}")
    assert (stored.headers, stored.body) == (row.headers, row.body)
    assert duesweep("sweep").code == 0
    assert _arrived(endpoint, "Billing") == _sent([row])
    assert duesweep("errors", "replay", key).code == 3
    (error,) = duesweep("errors", "show", key, "--json").document["errors"]
    assert error["changes"][0]["new_key"] is not None


def test_discarded_errors_are_left_out_unless_they_are_asked_for(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    (key, *_) = _fail(endpoint, duesweep, delayed_row("Nowhere"), delayed_row("Nowhere"))

    one = duesweep("errors", "discard", key)
    rest = duesweep("errors", "discard", "--all", "--yes")

    assert (one.code, one.err, rest.code) == (0, "", 0)
    assert duesweep("errors", "list", "--json").document["groups"] == []
    (group,) = duesweep("errors", "list", "--discarded", "--json").document["groups"]
    assert (group["open"], group["discarded"]) == (0, 2)
    again = duesweep("errors", "replay", key, "--to", "Billing")
    assert (again.code, endpoint.queue_rows("Billing")) == (3, [])
    assert f"{key} was discarded" in again.err


def test_dry_run_shows_what_it_would_hit_and_changes_nothing(
    endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    _fail(endpoint, duesweep, delayed_row("Nowhere"), delayed_row("Nowhere"))

    done = duesweep("errors", "replay", "--all", "--to", "Billing", "--dry-run")

    assert (done.code, done.err, endpoint.queue_rows("Billing")) == (0, "", [])
    assert done.out.endswith(": 2 errors would be replayed.\n")
    assert duesweep("errors", "list", "--json").document["open"] == 2


@pytest.mark.parametrize("command", ["replay", "discard"])
def test_unclear_command_changes_nothing(
    command: str, endpoint: Endpoint, duesweep: Duesweep
) -> None:
    endpoint.set_up("Billing")
    _fail(endpoint, duesweep, delayed_row("Nowhere"), delayed_row("Nowhere"))

    def refused(*arguments: str) -> str:
        done = duesweep("errors", command, *arguments)
        assert done.code == 2
        return done.err

    assert "Nothing says which errors are meant" in refused("--yes", "--reason", "up")
    assert "--all is given with ids or a filter" in refused("--all", "--destination", "*")
    assert "no reason is given" in refused("--all", "--yes")
    assert "no reason is given" in refused("--all", "--yes", "--reason", " ")
    assert "there is no terminal" in refused("--all", "--reason", "up")
    assert duesweep("errors", "list", "--json").document["open"] == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_person_at_the_terminal_is_asked(
    endpoint: Endpoint, duesweep: Duesweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    _fail(endpoint, duesweep, delayed_row("Nowhere"), delayed_row("Nowhere"))

    def answer(text: str) -> Run:
        monkeypatch.setattr("sys.stdin", _Terminal(text))
        return duesweep("errors", "replay", "--all", "--to", "Billing", "--reason", "up")

    for no in ("n\n", "\n", ""):
        assert answer(no).code == 3
        assert endpoint.queue_rows("Billing") == []
    done = answer("y\n")
    assert done.code == 0
    assert "Replay 2 errors to Billing? [y/N]" in done.err
    assert len(endpoint.queue_rows("Billing")) == 2


def test_copies_in_the_error_queue_are_told(endpoint: Endpoint, duesweep: Duesweep) -> None:
    endpoint.set_up("Billing", "error")
    (key,) = _fail(endpoint, duesweep, delayed_row("Nowhere"), retry__error_queue="error")

    done = duesweep("errors", "replay", key, "--to", "Billing")

    assert done.code == 0
    assert "has got copies of 1 error" in done.err


def test_errors_of_another_source_are_not_touched(endpoint: Endpoint, duesweep: Duesweep) -> None:
    endpoint.set_up("Billing")
    (key,) = _fail(endpoint, duesweep, delayed_row("Nowhere"))
    endpoint.config_file(store__name="another")

    assert duesweep("errors", "list", "--json").document["groups"] == []
    assert duesweep("errors", "replay", key, "--to", "Billing").code == 3
    assert endpoint.queue_rows("Billing") == []
