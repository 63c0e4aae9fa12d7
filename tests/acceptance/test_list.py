"""`duesweep list` on PostgreSQL: what it prints, and with which exit code."""

import json
from dataclasses import replace
from typing import Any

import pytest

from duesweep.cli.app import main
from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint

Captured = pytest.CaptureFixture[str]


def _list(endpoint: Endpoint, *arguments: str) -> int:
    return main(["list", "--config", str(endpoint.config_file()), *arguments])


def _document(capsys: Captured, endpoint: Endpoint, *arguments: str) -> dict[str, Any]:
    assert _list(endpoint, "--json", *arguments) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_empty_store_has_only_zeros(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up()

    assert _list(endpoint) == 0

    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [
        ["due", "messages"],
        *([*name.split(), "0"] for name in ("overdue", "in 1 min", "in 5 min", "in 1 h")),
        *([*name.split(), "0"] for name in ("in 1 d", "later", "all")),
    ]
    assert err == ""


def test_first_messages_are_shown_and_all_are_counted(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up()
    overdue = endpoint.delay("Billing", due_in_seconds=-7_200)
    endpoint.delay(None, due_in_seconds=30)
    for seconds in (200, 3_000, 80_000, 90_000, 90_000):
        endpoint.delay("Shipping", due_in_seconds=seconds)

    assert _list(endpoint, "--limit", "2") == 0

    out, err = capsys.readouterr()
    titles, first, second, _, *counts = out.splitlines()
    assert titles.split() == (
        ["due", "(UTC)", "in", "destination", "type", "message", "id", "key", "attempts"]
    )
    assert "2 h 0 min ago  Billing" in first
    assert overdue in first
    assert "Sales.Orders" in second
    assert [line.split()[-1] for line in counts[1:]] == ["1", "1", "1", "1", "1", "2", "7"]
    assert err == "duesweep: 5 more, which --limit shows\n"


def test_document_has_the_same_with_raw_values(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up()
    key = endpoint.delay("Billing", due_in_seconds=-60, body=b"12345")
    endpoint.delay("Billing", due_in_seconds=86_400 * 2)

    document = _document(capsys, endpoint, "--limit", "1")

    (message,) = document["messages"]
    assert (message["key"], message["destination"], message["body_bytes"]) == (key, "Billing", 5)
    assert (message["attempts"], message["next_attempt_at"], message["error"]) == (0, None, None)
    assert message["due"] < document["now"]
    assert document["counts"] == {
        "overdue": 1,
        "in_1_min": 0,
        "in_5_min": 0,
        "in_1_h": 0,
        "in_1_d": 0,
        "later": 1,
    }
    assert (document["total"], document["looked_at"], document["is_cut"]) == (2, None, False)


def test_filter_chooses_by_headers_and_says_how_many_messages_it_looked_at(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    wanted = replace(delayed_row("Billing.EU", due=endpoint.due_in(100), more={"Colour": "blue=1"}))
    endpoint.load([wanted, delayed_row("Billing.EU", due=endpoint.due_in(100))])
    endpoint.delay("Shipping")
    asked = ("--destination", "Billing*", "--header", "Colour=blue*", "--type", "*CancelOrder")

    found = _document(capsys, endpoint, *asked)
    assert _list(endpoint, *asked) == 0

    assert (found["total"], found["counts"]["in_5_min"], found["looked_at"]) == (1, 1, 3)
    assert "duesweep: looked at 3 messages\n" in capsys.readouterr().err


def test_scan_stops_at_its_limit_and_says_so(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(5, ["Billing"])
    asked = ("--destination", "Billing", "--scan-limit", "3")

    found = _document(capsys, endpoint, *asked)
    assert _list(endpoint, *asked) == 0

    assert (found["total"], found["looked_at"], found["is_cut"]) == (3, 3, True)
    assert "looked at 3 messages, and stopped there" in capsys.readouterr().err


def test_scan_of_exactly_as_many_as_there_are_is_not_cut(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up().delay_many(3, ["Billing"])

    found = _document(capsys, endpoint, "--destination", "Billing", "--scan-limit", "3")

    assert (found["total"], found["is_cut"]) == (3, False)


def test_span_of_dues_is_counted_without_a_look_at_headers(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up()
    for seconds in (-60, 30, 1_800, 3_000, 90_000):
        endpoint.delay(due_in_seconds=seconds)

    found = _document(
        capsys, endpoint, "--due-after", "now", "--due-before", "+40m", "--limit", "1"
    )

    assert [name for name, count in found["counts"].items() if count] == ["in_1_min", "in_1_h"]
    assert (found["total"], found["looked_at"], len(found["messages"])) == (2, None, 1)


def test_message_is_found_by_its_key_or_its_id(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(3)
    key = endpoint.delay()

    (by_key,) = _document(capsys, endpoint, "--key", key)["messages"]
    (by_id,) = _document(capsys, endpoint, "--message-id", by_key["message_id"])["messages"]

    assert by_key == by_id
    assert by_key["key"] == key
    assert _document(capsys, endpoint, "--key", key, "--type", "Other")["total"] == 0


def test_counts_alone_show_no_message(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(2)

    assert _list(endpoint, "--count") == 0

    out, err = capsys.readouterr()
    assert out.startswith("due")
    assert out.splitlines()[-1].split() == ["all", "2"]
    assert err == ""


def test_names_from_messages_cannot_move_a_terminal(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay("Bill\x1b[2Jing\u202e")

    assert _list(endpoint) == 0

    assert r"Bill\x1b[2Jing\u202e" in capsys.readouterr().out


def test_destination_that_no_message_is_for_is_told_with_similar_ones(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up().delay_many(4, ["Billing", '"public"."Billings"', "Shipping"])

    found = _document(capsys, endpoint, "--destination", "biling")
    assert _list(endpoint, "--destination", "biling") == 0

    similar = ["Billing", '"public"."Billings"']
    assert found["unknown_destination"] == {"pattern": "biling", "similar": similar}
    err = capsys.readouterr().err
    assert "no message that was looked at is for the destination 'biling'; did you mean" in err
    other = _document(capsys, endpoint, "--destination", "Billing", "--type", "Other")
    assert (other["total"], other["unknown_destination"]) == (0, None)


def test_messages_that_failed_are_listed_with_the_reason_and_the_next_attempt(
    capsys: Captured, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing", due_in_seconds=3_600)
    key = endpoint.delay("Bilings")
    endpoint.delay("Billing")
    file = str(endpoint.config_file())
    assert main(["sweep", "--config", file]) == 3
    summary = capsys.readouterr().out
    assert main(["errors", "list", "--config", file]) == 0
    no_errors = capsys.readouterr().out

    document = _document(capsys, endpoint, "--failing")
    assert _list(endpoint, "--failing") == 0

    titles, row, *_ = capsys.readouterr().out.splitlines()
    (message,) = document["messages"]
    assert (message["key"], message["attempts"], document["total"]) == (key, 1, 1)
    assert message["error"] == 'There is no queue table "public"."Bilings"'
    assert message["next_attempt_at"] > document["now"]
    assert titles.split() == (
        ["attempts", "next", "attempt", "(UTC)", "destination", "type", "key", "reason"]
    )
    next_attempt = message["next_attempt_at"][:19].replace("T", " ")
    assert row.split(maxsplit=1)[1].startswith(f"{next_attempt}  Bilings ")
    assert key in row
    assert row.endswith(message["error"])
    assert "duesweep list --failing" in summary
    assert "no message has exhausted its attempts" in no_errors
    assert "duesweep list --failing" in no_errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--header", "Colour"), "NAME=PATTERN"),
        (("--due-after", "tomorrow"), "is not a time"),
        (("--limit", "0"), "--limit"),
    ],
)
def test_wrong_option_is_refused(
    capsys: Captured, endpoint: Endpoint, arguments: tuple[str, ...], told: str
) -> None:
    assert _list(endpoint, *arguments) == 2

    out, err = capsys.readouterr()
    assert told in err
    assert out == ""


def test_table_that_is_missing_is_named(capsys: Captured, endpoint: Endpoint) -> None:
    assert _list(endpoint) == 2

    assert '"Sales.Orders.Delayed"' in capsys.readouterr().err


def test_journal_that_is_missing_is_named(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay()
    endpoint.execute(f"DROP TABLE {endpoint.own_table('attempts')}")

    assert _list(endpoint) == 2

    assert "run the command `setup` once" in capsys.readouterr().err


def test_role_that_may_only_read_can_list(capsys: Captured, endpoint: Endpoint) -> None:
    endpoint.set_up().delay()
    tables = f"{endpoint.delayed}, {endpoint.own_table('attempts')}"
    dsn = endpoint.server.role("reader", f"SELECT ON {tables}")
    file = str(endpoint.config_file(store__dsn=dsn))

    assert main(["list", "--config", file, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["total"] == 1


def test_store_that_cannot_show_messages_says_so(capsys: Captured, endpoint: Endpoint) -> None:
    file = str(
        endpoint.set_up().config_file(
            store__kind="support.acme_stores:BlindStore", queues__default__kind="postgresql"
        )
    )

    assert main(["list", "--config", file]) == 2

    assert "not supported by this store" in capsys.readouterr().err
