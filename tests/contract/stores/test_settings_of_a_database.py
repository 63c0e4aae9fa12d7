"""Settings of a database change no result of a command."""

import pytest

from duesweep.core.address import quote_name
from duesweep_testing.builders import delayed_row
from support.endpoint import Endpoint

# By the subject that they change; of one subject, none hides what another one does.
_SETTINGS = {
    "transactions": {
        "default_transaction_isolation": "serializable",
        "default_transaction_deferrable": "on",
    },
    "literals": {
        "standard_conforming_strings": "off",
        "backslash_quote": "off",
        "quote_all_identifiers": "on",
        "client_encoding": "LATIN1",
    },
    "texts of values": {
        "bytea_output": "escape",
        "DateStyle": "SQL, DMY",
        "IntervalStyle": "sql_standard",
        "extra_float_digits": "-15",
        "array_nulls": "off",
    },
    "conditions": {"transform_null_equals": "on", "row_security": "off"},
    "replica": {"session_replication_role": "replica"},
    "plans": {"enable_indexscan": "off", "plan_cache_mode": "force_generic_plan"},
}
_HEADERS = {"Back\\slash": 'it\'s \\ "quoted" \\u0041 é ✓', "Number": "1.5e3"}
_BODY = bytes(range(256))


def _set(endpoint: Endpoint, **settings: str) -> None:
    """For all new sessions."""
    database = endpoint.server.admin.info.dbname
    for name, value in settings.items():
        endpoint.execute(f"ALTER DATABASE {quote_name(database)} SET {name} = '{value}'")


@pytest.mark.parametrize("settings", _SETTINGS.values(), ids=_SETTINGS)
def test_settings_change_no_delivery_no_row_of_the_ledger_and_no_output(
    endpoint: Endpoint, settings: dict[str, str]
) -> None:
    endpoint.set_up("Billing")
    _set(endpoint, **settings)
    usual, unusual = (
        delayed_row(due=endpoint.due_in(-60), body=_BODY, more=more) for more in ({}, _HEADERS)
    )
    endpoint.load([usual, unusual, delayed_row("Nowhere", due=endpoint.due_in(-60), body=_BODY)])
    kept = endpoint.delay(due_in_seconds=3_600)

    failed = endpoint.document("sweep", code=3, retry__max_attempts=2)
    endpoint.end_back_off()
    exhausted = endpoint.document("sweep", code=3, retry__max_attempts=2)

    assert (failed["dispatched"], failed["failed"], exhausted["exhausted"]) == (2, 1, 1)
    assert [row.body for row in endpoint.queue_rows("Billing")] == [_BODY] * 2
    lateness = [row.lateness_ms for row in endpoint.ledger.rows("tombstones")]
    assert all(59_000 < each < 600_000 for each in lateness), lateness
    (group,) = endpoint.document("errors", "list")["groups"]
    assert (group["destination"], group["open"]) == ("Nowhere", 1)
    assert bytes(endpoint.ledger.rows("errors")[0].body) == _BODY
    (shown,) = endpoint.document("list", "--due-after", "now")["messages"]
    assert (shown["key"], endpoint.waiting()) == (kept, [kept])
    assert endpoint.document("audit")["findings"] == []


def test_database_that_is_read_only_by_default_is_refused_and_can_be_listed(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay()
    _set(endpoint, default_transaction_read_only="on")

    for command in ("sweep", "setup"):
        ran = endpoint.run(command)
        assert (ran.code, "read-only" in ran.err) == (2, True), ran
    (shown,) = endpoint.document("list")["messages"]
    assert endpoint.waiting() == [shown["key"]]
