"""`duesweep list`: spans, scans and stores that cannot tell; what it prints is in tests/golden."""

from typing import Any

from support.endpoint import Endpoint


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
    assert "looked at 3 messages, and stopped there" in endpoint.run("list", *asked, "3").err
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


def test_names_from_messages_cannot_move_a_terminal(endpoint: Endpoint) -> None:
    endpoint.set_up().delay("Bill\x1b[2Jing\u202e")

    assert r"Bill\x1b[2Jing\u202e" in endpoint.run("list").out


def test_table_or_journal_that_is_missing_is_named(endpoint: Endpoint) -> None:
    before = endpoint.run("list")
    endpoint.set_up().delay()
    endpoint.execute(f"DROP TABLE {endpoint.own_table('attempts')}")
    after = endpoint.run("list")

    assert (before.code, '"Sales.Orders.Delayed"' in before.err) == (2, True)
    assert (after.code, "run the command `setup` once" in after.err) == (2, True)


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
