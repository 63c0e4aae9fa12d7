"""`duesweep list` and `show`: spans, hostile and large messages; see also tests/golden."""

from pathlib import Path
from typing import Any

import pytest

from support.endpoint import Endpoint
from support.sweeps import run_sweep


def _document(endpoint: Endpoint, *arguments: str) -> Any:
    return endpoint.document("list", *arguments)


def _delay_each(endpoint: Endpoint, *seconds: float) -> None:
    for each in seconds:
        endpoint.delay("Shipping", due_in_seconds=each)


def test_empty_store_has_only_zeros(endpoint: Endpoint) -> None:
    ran = endpoint.set_up().run("list")

    names = ("overdue", "in 1 min", "in 5 min", "in 1 h", "in 1 d", "later", "all")
    titles, *counts = (line.split() for line in ran.out.splitlines())
    assert titles == ["due", "messages"]
    assert counts == [[*name.split(), "0"] for name in names]
    assert (ran.code, ran.err) == (0, "")


def test_scan_stops_at_its_limit_and_says_so(endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(5, ["Billing"])
    asked = ("--destination", "Billing", "--scan-limit")

    found, whole = _document(endpoint, *asked, "3"), _document(endpoint, *asked, "5")

    assert (found["total"], found["looked_at"], found["is_cut"]) == (3, 3, True)
    assert "looked at 3 messages and stopped" in endpoint.run("list", *asked, "3").err
    assert (whole["total"], whole["is_cut"]) == (5, False)


def test_span_of_dues_is_counted_without_a_look_at_headers(endpoint: Endpoint) -> None:
    _delay_each(endpoint.set_up(), -60, 30, 1_800, 3_000, 90_000)

    found = _document(endpoint, "--due-after", "now", "--due-before", "+40m", "--limit", "1")

    assert [name for name, count in found["counts"].items() if count] == ["in_1_min", "in_1_h"]
    assert (found["total"], found["looked_at"], len(found["messages"])) == (2, None, 1)


def test_message_is_found_by_its_key_or_its_id(endpoint: Endpoint) -> None:
    endpoint.set_up().delay_many(3)
    key = endpoint.delay()

    (by_key,) = _document(endpoint, "--key", key)["messages"]
    (by_id,) = _document(endpoint, "--message-id", by_key["message_id"])["messages"]

    assert (by_id, by_key["key"]) == (by_key, key)
    assert _document(endpoint, "--key", key, "--type", "Other")["total"] == 0


def test_table_or_journal_that_is_missing_is_named(endpoint: Endpoint) -> None:
    before = endpoint.run("list")
    endpoint.set_up().delay()
    endpoint.execute(f"DROP TABLE {endpoint.own_table('attempts')}")
    after = endpoint.run("list")

    assert (before.code, '"Sales.Orders.Delayed"' in before.err) == (2, True)
    assert (after.code, "Run the command `setup` once" in after.err) == (2, True)


def test_role_that_may_only_read_can_list(endpoint: Endpoint) -> None:
    endpoint.set_up().delay()
    tables = f"{endpoint.delayed}, {endpoint.own_table('attempts')}"
    dsn = endpoint.server.role("reader", f"SELECT ON {tables}")

    assert _document(endpoint.having(store__dsn=dsn))["total"] == 1


def test_store_that_cannot_show_messages_says_so(endpoint: Endpoint) -> None:
    blind = {
        "store__kind": "support.acme_stores:BlindStore",
        "queues__default__kind": "postgresql",
    }

    ran = endpoint.set_up().run("list", **blind)

    assert (ran.code, "not supported by this store" in ran.err) == (2, True)


UNKNOWN = "0b1f4a9e-6d3c-4f52-9b1c-1f0a7c3d5e6f"
NASTY = b"\x1b]0;owned\x07\x1b[2J\xff\xfe\x00 \xe2\x80\xae and a text" + 100 * b"."


def _id_of(endpoint: Endpoint, key: str) -> str:
    return str(endpoint.document("show", key)["messages"][0]["message_id"])


def test_large_body_is_cut_and_a_file_gets_all_of_it(endpoint: Endpoint, tmp_path: Path) -> None:
    body = b"x" * 10_000_000
    key = endpoint.set_up().delay(body=body)
    file = tmp_path / "body"

    ran = endpoint.run("show", key, "--body-to", str(file))

    assert "body (10.0 MB, as text, the beginning; --body-to FILE writes all of it)" in ran.out
    assert (ran.code, len(ran.out) < 30_000) == (0, True)
    assert file.read_bytes() == body
    assert file.stat().st_mode & 0o077 == 0


def test_body_goes_to_a_file_byte_for_byte_and_never_over_another(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    key = endpoint.set_up().delay(body=NASTY)
    show = ("show", key, "--body-to", str(tmp_path / "body"))

    assert endpoint.run(*show).code == 0
    again = endpoint.run(*show)

    assert (again.code, "Name a new file" in again.err) == (2, True)
    assert (tmp_path / "body").read_bytes() == NASTY


def test_message_that_has_left_is_known_to_the_ledger(endpoint: Endpoint) -> None:
    key = endpoint.set_up("Billing").delay()
    message_id = _id_of(endpoint, key)
    run_sweep(endpoint)

    document = endpoint.document("show", key)
    ran = endpoint.run("show", key)

    assert endpoint.document("show", "--message-id", message_id)["history"] == document["history"]
    assert document["messages"] == []
    (event,) = document["history"]
    assert (event["table"], event["what"]) == ("tombstones", "dispatched")
    assert (ran.code, "dispatched" in ran.out) == (0, True)
    assert ran.out.endswith(f"\nNo message with key {key} is in the store any more.\n")
    assert ran.err == ""


def test_list_of_failing_messages_says_that_there_are_none(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay()

    ran = endpoint.run("list", "--failing")

    assert (ran.code, ran.out) == (0, "No failing message was found.\n")


@pytest.mark.parametrize("name", [UNKNOWN, "no UUID", "\x1b[2J"])
def test_message_that_nobody_knows_is_told_so(endpoint: Endpoint, name: str) -> None:
    endpoint.set_up().delay()

    ran = endpoint.run("show", name)

    assert (ran.code, ran.out) == (3, "")
    assert "has no message with key " in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("arguments", [(), (UNKNOWN, "--message-id", "1")])
def test_key_or_message_id_has_to_be_given(endpoint: Endpoint, arguments: tuple[str, ...]) -> None:
    ran = endpoint.run("show", *arguments)

    assert (ran.code, "Give either KEY or --message-id ID" in ran.err) == (2, True)


def test_ledger_in_a_catalog_is_left_out_without_spark(endpoint: Endpoint) -> None:
    key = endpoint.set_up().delay()

    ran = endpoint.run("show", key, ledger__root="main.duesweep")

    assert (ran.code, key in ran.out) == (0, True)
    assert "no Spark session is there to read it" in ran.err


def test_ledger_that_is_damaged_ends_with_2_after_the_message(endpoint: Endpoint) -> None:
    key = endpoint.set_up("Billing").delay(due_in_seconds=3_600)
    endpoint.delay()
    run_sweep(endpoint)
    for log in (endpoint.folder / "ledger" / "tombstones" / "_delta_log").glob("*.json"):
        log.write_text("broken")

    ran = endpoint.run("show", key)

    assert (ran.code, key in ran.out) == (2, True)
    assert "the history is not shown: " in ran.err
