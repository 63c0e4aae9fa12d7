"""Headers that attack statements, separators and parsers: each costs its own message alone."""

import json

from duesweep.core.headers import FORWARD_DESTINATION, remove_forward_destination
from duesweep.core.message import ENCLOSED_MESSAGE_TYPES, MESSAGE_ID
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint

_TO_BILLING = f'"{FORWARD_DESTINATION}":"Billing"'
_MB = 1_000_000

# Statements put texts of many messages together, with this character between them.
_SEPARATOR = "\x1f"

READ = {
    "no header but the destination": f"{{{_TO_BILLING}}}",
    "the destination first": f'{{{_TO_BILLING},"a":"b"}}',
    "the separator as an escape": f'{{"a":"\\u001f",{_TO_BILLING}}}',
    "the separator's escape in a name": f'{{"\\u001f":"a",{_TO_BILLING}}}',
    "blanks around all": f' {{ "a" : "b" , "{FORWARD_DESTINATION}" : "Billing" }} \n',
    "an escaped name": "{" + _TO_BILLING.replace("N", "\\u004e", 1) + "}",
    "the destination twice": f'{{"{FORWARD_DESTINATION}":"Nowhere",{_TO_BILLING}}}',
    "no destination": "{}",
    "100,000 headers": "{"
    + ",".join(f'"h{number}":"{number}"' for number in range(100_000))
    + f",{_TO_BILLING}}}",
    "an id of 1 MB": f'{{"{MESSAGE_ID}":"{"i" * _MB}",{_TO_BILLING}}}',
    "types of 1 MB": f'{{"{ENCLOSED_MESSAGE_TYPES}":"{"t" * _MB}",{_TO_BILLING}}}',
    "a header of 1 MB": f'{{"a":"{"x" * _MB}",{_TO_BILLING}}}',
}
_FOREIGN = {
    "the delayed table": '"Sales.Orders.Delayed"',
    "the journal": "duesweep_journal",
    "a catalog": '"pg_catalog"."pg_class"',
    "a name of the statements": "{delayed}",
    "a placeholder": "%s",
    "a statement": 'Billing\'; DROP TABLE "Billing"; --',
    "a NUL": "Bil\0ling",
    "half of a pair": "Billing\ud800",
    "the separator": f"Billing{_SEPARATOR}",
    "other case": "billing",
    "a blank behind": "Billing ",
}
REFUSED = {
    **{name: json.dumps({FORWARD_DESTINATION: text}) for name, text in _FOREIGN.items()},
    "two halves with the separator between": f'{{"a":"b"{_SEPARATOR},{_TO_BILLING}}}',
    "the separator within a text": f'{{"a":"{_SEPARATOR}",{_TO_BILLING}}}',
    "the separator behind": f"{{{_TO_BILLING}}}{_SEPARATOR}",
    "text behind": f"{{{_TO_BILLING}}} and more",
    "a comma behind": f"{{{_TO_BILLING},}}",
    "200,000 levels": '{"a":' + "[" * 200_000 + "]" * 200_000 + f",{_TO_BILLING}}}",
    "200,000 open levels": '{"a":' * 200_000,
    "a list": f"[{{{_TO_BILLING}}}]",
    "a text": '"Billing"',
    "null": "null",
    "a huge number": f'{{"{FORWARD_DESTINATION}":1e999999}}',
    "a list as the destination": f'{{"{FORWARD_DESTINATION}":["Billing"]}}',
    "nothing": "",
}


def _loaded(endpoint: Endpoint, texts: dict[str, str]) -> dict[str, DelayedRow]:
    """By their names; bodies are the names."""
    due = endpoint.due_in(-60)
    rows = {
        name: DelayedRow(headers=text, body=name.encode(), due=due) for name, text in texts.items()
    }
    endpoint.load(rows.values())
    return rows


def test_headers_that_can_be_read_arrive_beside_those_that_cannot(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing", "Sales.Orders")
    read, refused = _loaded(endpoint, READ), _loaded(endpoint, REFUSED)
    endpoint.load(delayed_row(due=endpoint.due_in(-60), body=b"good") for _ in range(20))

    failed = endpoint.document("sweep", code=3, retry__max_attempts=2)
    endpoint.end_back_off()
    exhausted = endpoint.document("sweep", code=3, retry__max_attempts=2)

    assert (failed["dispatched"], failed["failed"]) == (len(read) + 20, len(refused))
    assert (exhausted["exhausted"], endpoint.waiting()) == (len(refused), [])
    arrived = [*endpoint.queue_rows("Billing"), *endpoint.queue_rows("Sales.Orders")]
    assert sorted((row.body, row.headers) for row in arrived if row.body != b"good") == sorted(
        (name.encode(), remove_forward_destination(text)) for name, text in READ.items()
    )
    errors = {row.message_key: row for row in endpoint.ledger.rows("errors")}
    assert {key: (bytes(row.body).decode(), row.headers_text) for key, row in errors.items()} == {
        refused[name].key: (name, text) for name, text in REFUSED.items()
    }
    assert all(len(row.error_text) < 600 for row in errors.values())
    assert endpoint.document("audit")["findings"] == []
