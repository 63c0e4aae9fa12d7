"""`duesweep queue …` and `duesweep subscriptions …`, on each transport."""

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from duesweep_transport.tables import TransportSession
from support.commands import Ran
from support.transport import (
    BILLING,
    Subject,
    change,
    fill,
    message,
    receive_all,
    rows,
    transport_of,
)

Run = Callable[..., Ran]


@pytest.fixture
def run(subject: Subject) -> Run:
    """Run a command with the endpoint's configuration."""
    return subject.having(retry__error_queue="error").run


def test_message_goes_in_and_comes_out(run: Run, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"\0\xff")
    assert run("queue", "create", BILLING).code == 0
    assert run("queue", "create", "Readable", "--readable-body").code == 0

    send = ("queue", "send", BILLING)
    assert run(*send, "--header", "a=b=c", "--header", "d=", "--body", "☃").code == 0
    assert run(*send, "--body-file", str(body), "--time-to-be-received", "1h").code == 0

    peeked = run("queue", "peek", BILLING, "--json")
    assert (peeked.code, peeked.document["messages"]) == (0, 2)
    received = run("queue", "receive", BILLING, "--count", "5", "--json")
    first, second = map(json.loads, received.out.splitlines())
    assert received.code == 0
    assert first["headers"] == {"a": "b=c", "d": ""}
    assert base64.b64decode(first["body"]).decode() == "☃"
    assert second["headers"] == {}
    assert base64.b64decode(second["body"]) == b"\0\xff"
    assert run("queue", "receive", BILLING) == Ran(0, "", "")


def test_message_is_shown_to_people(run: Run, session: TransportSession) -> None:
    fill(session.queue(BILLING), 1)

    ran = run("queue", "receive", BILLING)

    first, *lines = ran.out.splitlines()
    assert (ran.code, first[:4]) == (0, "id: ")
    assert lines == ["n: 1", "Slash: a/b", "Null: ", "", '{"OrderId":1}', ""]


def test_message_is_stored_for_later(run: Run, subject: Subject) -> None:
    ran = run("queue", "send", BILLING, "--delay", "1d2h3m4s5ms", "--header", "a=b")

    assert (ran.code, ran.out[:11]) == (0, "stored for ")
    assert len(subject.fetch(f"SELECT due FROM {subject.delayed}")) == 1


def test_delay_with_a_time_to_be_received_is_refused(run: Run, subject: Subject) -> None:
    times = ("--delay", "1s", "--time-to-be-received", "30s")
    ran = run("queue", "send", BILLING, *times)

    assert (ran.code, "Leave one of the two out" in ran.err) == (2, True)
    assert subject.fetch(f"SELECT due FROM {subject.delayed}") == []


def test_purging_takes_a_yes_and_counts(run: Run, session: TransportSession) -> None:
    queue = fill(session.queue(BILLING), 3)

    assert run("queue", "purge", BILLING).code == 2
    assert queue.peek() == 3
    expired = run("queue", "purge-expired", BILLING, "--json")
    assert (expired.code, expired.document["purged"]) == (0, 0)
    purged = run("queue", "purge", BILLING, "--yes")
    assert purged == Ran(0, f"{queue.destination}: 3 purged\n", "")


def test_poison_goes_to_the_error_queue_and_is_reported(
    run: Run, subject: Subject, session: TransportSession
) -> None:
    queue, error = fill(session.queue(BILLING), 1), fill(session.queue("error"), 0)
    change(subject, queue.destination, "headers = 'no JSON'")

    ran = run("queue", "receive", BILLING)

    assert (ran.code, ran.out, " to error, since" in ran.err) == (3, "", True)
    assert [row[0] for row in rows(subject, error.destination)] == ["no JSON"]


def test_poison_stays_where_there_is_no_error_queue(
    subject: Subject, session: TransportSession
) -> None:
    queue = fill(session.queue(BILLING), 1)
    change(subject, queue.destination, "headers = 'no JSON'")

    ran = subject.run("queue", "receive", BILLING)

    assert (ran.code, "Set retry.error_queue" in ran.err) == (2, True)
    assert len(rows(subject, queue.destination)) == 1


# SQL Server's count of a row says nothing of its triggers.
_DROPS = {
    "trigger": "CREATE TRIGGER t BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION nothing()",
    "rule": "CREATE RULE r AS ON INSERT TO {} DO INSTEAD NOTHING",
}


@pytest.mark.parametrize("drop", _DROPS.values(), ids=_DROPS)
def test_message_that_a_table_drops_is_not_reported_as_sent(drop: str, endpoint: Subject) -> None:
    endpoint.set_up(BILLING, "error", retry__error_queue="error")
    receiving = endpoint.having(retry__error_queue="error")
    with transport_of(endpoint).connect() as session:
        session.queue(BILLING).send(message())
        change(endpoint, session.queue(BILLING).destination, "headers = 'no JSON'")
    endpoint.execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    for table in (endpoint.delayed, '"Billing"', '"error"'):
        endpoint.execute(drop.format(table))

    for command in ("send Billing", "send Billing --delay 1h", "receive Billing"):
        ran = receiving.run("queue", *command.split())
        assert (ran.code, "took 0 of 1 rows" in ran.err, ran.out) == (2, True, ""), (command, ran)
    assert len(endpoint.queue_rows(BILLING)) == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["peek", "Nowhere"], "There is no queue table"),
        (["peek", " "], "names no table"),
        (["send", BILLING, "--header", "a"], "not of the form NAME=VALUE"),
        (["send", BILLING, "--delay", "30"], "is not a duration"),
        (["send", BILLING, "--body", "a", "--body-file", "b"], "are both given"),
        (["send", BILLING, "--body-file", "/nowhere"], "cannot be read"),
        (["send", BILLING, "--header", "a=1", "--header", "a=2"], "header a is given twice"),
        (["peek", BILLING, "--connection", "nowhere"], "Unknown connection nowhere"),
        (["receive", BILLING, "--count", "0"], "see --help"),
    ],
)
def test_wrong_argument_says_what_is_wrong(run: Run, arguments: list[str], expected: str) -> None:
    ran = run("queue", *arguments)

    assert (ran.code, ran.out, expected in ran.err) == (2, "", True)


def test_queue_in_a_schema_that_there_is_not_is_refused_by_its_name(
    run: Run, subject: Subject
) -> None:
    place = transport_of(subject).addresses.parse("Queue")
    address = str(replace(place, schema="no such"))  # type: ignore[type-var]

    ran = run("queue", "create", address)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "no such" in ran.err
    assert "schema" in ran.err


def test_subscriptions_are_created_added_listed_and_removed(
    run: Run, session: TransportSession
) -> None:
    fill(session.queue(BILLING), 0)
    place = str(session.queue(BILLING).destination)
    assert run("subscriptions", "list", "Placed", "--table", "Nowhere").code == 2
    assert run("subscriptions", "create").code == 0

    add = ("subscriptions", "add", "Placed", BILLING, "--subscriber", "Billing")
    assert [run(*add).code for _ in range(2)] == [0, 0]

    assert run("subscriptions", "list", "Placed", "Billed") == Ran(0, f"{place}\n", "")
    listed = run("subscriptions", "list", "Placed", "--json")
    assert (listed.code, listed.document) == (
        0,
        {"addresses": [place], "exit_code": 0, "error": None},
    )
    remove = ("subscriptions", "remove", "Placed", "--subscriber", "Billing")
    assert run(*remove).out == "Billing is no longer subscribed to Placed\n"
    assert run(*remove).out == "Billing was not subscribed to Placed\n"
    assert run("subscriptions", "list", "Placed") == Ran(0, "", "")


def test_subscriptions_may_be_in_a_table_of_another_name(
    run: Run, session: TransportSession
) -> None:
    assert run("subscriptions", "create", "--table", "Routes").code == 0
    add = ("subscriptions", "add", "Placed", BILLING, "--subscriber", "Billing")
    assert run(*add, "--table", "Routes").code == 0

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
