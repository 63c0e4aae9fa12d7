"""Replays to RabbitMQ, which has no transaction with the store: at least once, told as it is."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace

from duesweep import Duesweep, ErrorFilter
from duesweep.api.replaying import ErrorsReport
from duesweep.core.errors import StoreError
from duesweep.core.headers import FORWARD_DESTINATION, read_json
from duesweep.core.message import MESSAGE_ID
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.proxy import Way, proxied
from support.rabbitmq.broker import Broker
from support.rabbitmq.settings import set_up, settings
from support.sweeps import run_sweep

_ROWS = 200
_BATCH_ROWS = 40
_BODY = b"\xff\x00" * 500
_BYTES_BEFORE_CUT = 150_000


def test_each_error_arrives_once_with_its_headers_and_its_body_to_the_byte(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, broker)
    opened = Duesweep(endpoint.config(**settings(broker, sweep__batch_rows=_BATCH_ROWS)))

    done = _replay(opened)
    again = _replay(opened)

    assert (done.chosen, done.failed) == (_ROWS, 0)
    assert (again.chosen, again.done_before, again.done) == (0, _ROWS, None)
    taken = broker.take_all("Billing", _ROWS)
    arrived = {properties.message_id: (properties.headers, body) for _, properties, body in taken}
    assert (len(taken), set(arrived)) == (_ROWS, set(rows))
    assert broker.count("Billing") == 0
    for message_id, row in rows.items():
        headers = {k: v for k, v in read_json(row.headers).items() if v is not None}
        headers.pop(FORWARD_DESTINATION)
        sent, body = arrived[message_id]
        assert body == _BODY
        assert {name: sent[name] for name in headers} == headers
        assert not [name for name in sent if "Failed" in name or "Exception" in name]
    assert _journalled(ledger) == dict.fromkeys(rows, 1)


def test_connection_that_is_cut_leaves_open_what_was_not_confirmed(
    endpoint: Endpoint, broker: Broker, ledger: LedgerReader
) -> None:
    rows = _fail(endpoint, broker)
    config = settings(broker, sweep__batch_rows=_BATCH_ROWS)

    with proxied(broker.server.amqp) as proxy:
        url = broker.server.url(broker.vhost, proxy.port)
        opened = Duesweep(endpoint.config(**config | {"queues__default__url": url}))
        proxy.cut_after(_BYTES_BEFORE_CUT, Way.TO_SERVER)
        with suppress(StoreError):
            _replay(opened)
        assert proxy.cuts == 1
        for _ in range(3):
            if _replay(opened).chosen == 0:
                break

    assert opened.errors() == []
    times = Counter(one.message_id for one in broker.drain("Billing"))
    assert set(times) == set(rows)
    # What was sent and not confirmed before the cut is sent again.
    assert sum(times.values()) - _ROWS <= _BATCH_ROWS
    assert _journalled(ledger) == dict.fromkeys(rows, 1)


def _fail(endpoint: Endpoint, broker: Broker) -> dict[str, DelayedRow]:
    """Messages that exhausted their attempts, by their ids; now their queue is there."""
    set_up(endpoint, broker, "Shipping")
    due = endpoint.due_in(-60)
    rows = [replace(delayed_row("Billing", body=_BODY), due=due) for _ in range(_ROWS)]
    endpoint.load(rows)
    config = settings(broker, retry__max_attempts=1, retry__max_exhausted_per_sweep=_ROWS)
    summary = run_sweep(endpoint, **config)
    assert summary.exhausted == _ROWS
    broker.create("Billing")
    return {str(read_json(row.headers)[MESSAGE_ID]): row for row in rows}


def _replay(opened: Duesweep) -> ErrorsReport:
    return opened.replay(ErrorFilter(), reason="the queue is there", everything=True)


def _journalled(ledger: LedgerReader) -> Counter[str]:
    """How often the ledger calls each message replayed."""
    rows = ledger.rows("changes")
    return Counter(row.message_id for row in rows if row.change == "replayed")
