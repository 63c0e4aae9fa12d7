"""`duesweep queue …` and `duesweep subscriptions …`, on each transport."""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from duesweep.cli.app import main
from duesweep.queues.operations import TransportSession
from support.operations.steps import BILLING, fill, receive_all
from support.operations.subjects import Subject

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(subject: Subject, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with the endpoint's configuration: exit code, lines of stdout, stderr."""
    file = str(subject.config_file(retry__error_queue="error"))

    def run_command(*arguments: str) -> tuple[int, list[str], str]:
        code = main([*arguments, "--config", file])
        shown = capsys.readouterr()
        return code, shown.out.splitlines(), shown.err

    return run_command


def _json(lines: Sequence[str]) -> list[Any]:
    return [json.loads(line) for line in lines]


def test_message_goes_in_and_comes_out(run: Run, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\0\xff")
    assert run("queue", "create", BILLING)[0] == 0
    assert run("queue", "create", "Readable", "--readable-body")[0] == 0

    send = ("queue", "send", BILLING)
    assert run(*send, "--header", "a=b=c", "--header", "d=", "--body", "☃")[0] == 0
    assert run(*send, "--body-file", str(body), "--time-to-be-received", "1h")[0] == 0

    code, lines, _ = run("queue", "peek", BILLING, "--json")
    assert (code, _json(lines)[0]["messages"]) == (0, 2)
    code, lines, _ = run("queue", "receive", BILLING, "--count", "5", "--json")
    first, second = _json(lines)
    assert code == 0
    assert first["headers"] == {"a": "b=c", "d": ""}
    assert base64.b64decode(first["body"]).decode() == "☃"
    assert second["headers"] == {}
    assert base64.b64decode(second["body"]) == b"\0\xff"
    assert run("queue", "receive", BILLING) == (0, [], "")


def test_message_is_shown_to_people(run: Run, session: TransportSession) -> None:
    fill(session.queue(BILLING), 1)

    code, lines, _ = run("queue", "receive", BILLING)

    assert code == 0
    assert lines[0].startswith("id: ")
    assert lines[1:] == ["n: 1", "Slash: a/b", "Null: ", "", '{"OrderId":1}', ""]


def test_message_is_stored_for_later(run: Run, subject: Subject) -> None:
    code, lines, _ = run("queue", "send", BILLING, "--delay", "1d2h3m4s5ms", "--header", "a=b")

    assert code == 0
    assert lines[0].startswith("stored for ")
    assert len(subject.run(f"SELECT due FROM {subject.delayed}")) == 1


def test_delay_with_a_time_to_be_received_is_refused(run: Run, subject: Subject) -> None:
    times = ("--delay", "1s", "--time-to-be-received", "30s")
    code, _, said = run("queue", "send", BILLING, *times)

    assert code == 2
    assert "leave one of the two out" in said
    assert subject.run(f"SELECT due FROM {subject.delayed}") == []


def test_purging_takes_a_yes_and_counts(run: Run, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 3)

    assert run("queue", "purge", BILLING)[0] == 2
    assert queue.peek() == 3
    code, lines, _ = run("queue", "purge-expired", BILLING, "--batch-size", "2", "--json")
    assert (code, _json(lines)[0]["purged"]) == (0, 0)
    assert run("queue", "purge", BILLING, "--yes") == (0, [f"{queue.destination}: 3 purged"], "")


def test_poison_goes_to_the_error_queue_and_is_reported(
    run: Run, subject: Subject, session: TransportSession
) -> None:
    queue, error = fill(session.queue(BILLING), 1), fill(session.queue("error"), 0)
    subject.run(f"UPDATE {subject.quoted(queue.destination)} SET headers = 'no JSON'")

    code, lines, said = run("queue", "receive", BILLING)

    assert (code, lines) == (3, [])
    assert " to error, since" in said
    assert [row[0] for row in subject.rows(error.destination)] == ["no JSON"]


def test_poison_stays_where_there_is_no_error_queue(
    subject: Subject, session: TransportSession, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = fill(session.queue(BILLING), 1)
    subject.run(f"UPDATE {subject.quoted(queue.destination)} SET headers = 'no JSON'")

    assert main(["queue", "receive", BILLING, "--config", str(subject.config_file())]) == 2

    assert "set retry.error_queue" in capsys.readouterr().err
    assert len(subject.rows(queue.destination)) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["peek", "Nowhere"], "There is no queue table"),
        (["peek", " "], "names no table"),
        (["send", BILLING, "--header", "a"], "not of the form NAME=VALUE"),
        (["send", BILLING, "--delay", "30"], "is not a duration"),
        (["send", BILLING, "--body", "a", "--body-file", "b"], "are both given"),
        (["send", BILLING, "--body-file", "/nowhere"], "cannot be read"),
        (["purge-expired", BILLING, "--batch-size", "5000"], "size from 1 to 4999"),
        (["peek", BILLING, "--connection", "nowhere"], "Unknown connection nowhere"),
        (["receive", BILLING, "--count", "0"], "see --help"),
    ],
)
def test_wrong_argument_says_what_is_wrong(run: Run, arguments: list[str], expected: str) -> None:
    code, lines, said = run("queue", *arguments)

    assert (code, lines) == (2, [])
    assert expected in said


def test_queue_in_a_schema_that_there_is_not_is_refused_by_its_name(
    run: Run, subject: Subject
) -> None:
    place = subject.transport.addresses.parse("Queue")
    address = str(replace(place, schema="no such"))  # type: ignore[type-var]

    code, lines, said = run("queue", "create", address)

    assert (code, lines) == (2, [])
    assert "no such" in said
    assert "schema" in said
    assert said.count("\n") == 1


def test_subscriptions_are_created_added_listed_and_removed(
    run: Run, session: TransportSession
) -> None:
    fill(session.queue(BILLING), 0)
    place = str(session.queue(BILLING).destination)
    assert run("subscriptions", "list", "Placed", "--table", "Nowhere")[0] == 2
    assert run("subscriptions", "create")[0] == 0

    add = ("subscriptions", "add", "Placed", BILLING, "--endpoint", "Billing")
    assert run(*add)[0] == 0
    assert run(*add)[0] == 0

    assert run("subscriptions", "list", "Placed", "Billed") == (0, [place], "")
    code, lines, _ = run("subscriptions", "list", "Placed", "--json")
    assert (code, _json(lines)) == (0, [{"address": place}])
    remove = ("subscriptions", "remove", "Placed", "--endpoint", "Billing")
    assert run(*remove)[1] == ["Billing is no longer subscribed to Placed"]
    assert run(*remove)[1] == ["Billing was not subscribed to Placed"]
    assert run("subscriptions", "list", "Placed") == (0, [], "")


def test_subscriptions_may_be_in_a_table_of_another_name(
    run: Run, session: TransportSession
) -> None:
    assert run("subscriptions", "create", "--table", "Routes")[0] == 0
    add = ("subscriptions", "add", "Placed", BILLING, "--endpoint", "Billing")
    assert run(*add, "--table", "Routes")[0] == 0

    assert len(session.subscriptions("Routes").subscribers(["Placed"])) == 1


def test_received_message_is_gone_only_when_it_was_shown(
    run: Run, session: TransportSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = fill(session.queue(BILLING), 1)

    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError

    with monkeypatch.context() as patch:
        patch.setattr("builtins.print", fail)
        with pytest.raises(BrokenPipeError):
            run("queue", "receive", BILLING)

    assert list(receive_all(queue)) == [1]
