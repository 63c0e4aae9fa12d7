"""The moved form of a batch on SQL Server: that it is used, its messages, and the batches
that need the careful form. Nothing here shows locks: a stand-in has none.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from duesweep.core.errors import (
    MessageError,
    RefusedMessageError,
    SweepClosedError,
    UnusualBatchError,
)
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.message import Failed
from duesweep.stores.forward import cut_off
from duesweep.stores.sqlserver_task import SqlServerTask
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Forwarded, Moved, Table
from duesweep.sweep.job import SweepContext
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_testing.sweeps import close_sweep, move_into, open_sweep
from support.random_headers import careful_message, random_headers
from support.sqlserver_server import SqlServerEndpoint
from support.sweeps import dispatch_without_settling


def _move(
    endpoint: SqlServerEndpoint,
    *dues: str,
    meanwhile: Callable[[SweepContext, SweepRun], None] = lambda *_: None,
) -> Moved:
    """Move messages. `meanwhile` runs after they were read."""
    context = endpoint.context()
    run = open_sweep(context.store)
    with context.store.open_task() as task, context.queue.open(task) as queue:

        def into(address: str | None) -> Table:
            table = queue.table(queue.resolve(address))
            assert table is not None
            return table

        moved = move_into(task, run, [Forwarded(None, dues)], into)
        meanwhile(context, run)
        task.finish_moved(run, 0, moved, moved.server_us)
    return moved


def _dispatch(context: SweepContext) -> None:
    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)


@pytest.mark.parametrize("kind", ["sqlserver", "sql-persistence"])
def test_usual_messages_go_through_the_moved_form_alone(
    sqlserver_endpoint: SqlServerEndpoint, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = sqlserver_endpoint.of_kind(kind).set_up("Billing", "Shipping")
    shipping = endpoint.addresses.parse("Shipping").sql
    endpoint.execute(f"ALTER TABLE {shipping} DROP COLUMN Recoverable")
    due = endpoint.due_in(-60)
    endpoint.load(
        delayed_row(("Billing", "Shipping")[n % 2], due=due - timedelta(seconds=n // 2))
        for n in range(7)
    )
    context = endpoint.context(sweep__batch_rows=3)
    monkeypatch.delattr(SqlServerTask, "lock")

    _dispatch(context)

    queues = {name: endpoint.queue_rows(name) for name in ("Billing", "Shipping")}
    assert [len(rows) for rows in queues.values()] == [4, 3]
    assert endpoint.waiting() == []


def test_moved_messages_are_what_the_careful_form_makes_of_them(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    """In the order of their Due, under ids of their own, with their bodies."""
    endpoint = sqlserver_endpoint.set_up("Billing")
    random = Random(31)
    usual = []
    for text in (random_headers(random) for _ in range(400)):
        message = careful_message(text)
        is_read = not isinstance(message.headers, MessageError)
        ending = cut_off('Billing"}')
        is_last = text.count(FORWARD_DESTINATION) == 1 and text.endswith(ending)
        if is_read and is_last and text.isascii():
            usual.append(text.replace('"a"', '"\N{GREEK SMALL LETTER ALPHA}"'))
    assert len(usual) > 50
    bodies: list[bytes | None] = [None, b"", *(b"%d" % n * 1_000 for n in range(2, len(usual)))]
    rows = [
        DelayedRow(headers=text, body=body, due=endpoint.due_in(n - 500))
        for n, (text, body) in enumerate(zip(usual, bodies, strict=True))
    ]
    order = list(range(len(rows)))
    random.shuffle(order)
    stored = {row.key: row for row in endpoint.load([rows[n] for n in order])}
    dues = endpoint.server.claim_keys(stored.values())

    moved = _move(endpoint, *dues)

    assert set(moved.tombstones.keys) == set(stored)
    arrived = endpoint.queue_rows("Billing")
    expected = [careful_message(row.headers) for row in rows]
    assert [row.headers for row in arrived] == [message.headers_text for message in expected]
    assert [row.body for row in arrived] == bodies
    assert endpoint.waiting() == []


def test_messages_of_one_due_that_do_not_fit_a_batch_arrive_once(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    due = endpoint.due_in(-60)
    endpoint.load([delayed_row("Billing", due=due) for _ in range(8)])

    _dispatch(endpoint.context(sweep__batch_rows=3))

    assert len(endpoint.queue_rows("Billing")) == 8
    assert endpoint.waiting() == []
    journal = endpoint.own_table("journal")
    (end,) = endpoint.fetch(f"SELECT given, claimed, gone FROM {journal} WHERE kind = 'slice'")
    assert (end.given, end.claimed, end.gone) == (8, 8, 0)


def test_queue_that_refuses_a_message_gets_the_others(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    queue = endpoint.addresses.parse("Billing").sql
    endpoint.execute(f"ALTER TABLE {queue} ADD CHECK (Body <> 0x66)")
    bodies = [b"a", b"f", b"b"]
    endpoint.load(
        [delayed_row("Billing", body=b, due=endpoint.due_in(n - 9)) for n, b in enumerate(bodies)]
    )

    _dispatch(endpoint.context())

    assert [row.body for row in endpoint.queue_rows("Billing")] == [b"a", b"b"]
    assert len(endpoint.attempts()) == len(endpoint.waiting()) == 1


@pytest.mark.parametrize("what", ["one goes", "one comes", "one gets another Due", "a trigger"])
def test_batch_that_others_disturb_after_it_was_read_never_happened(
    sqlserver_endpoint: SqlServerEndpoint, what: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing", "Shipping")
    due = endpoint.due_in(-60)
    rows = endpoint.load([delayed_row(name, due=due) for name in ("Billing", "Shipping")])
    delayed, billing = endpoint.delayed, endpoint.addresses.parse("Billing").sql
    key = rows[1].key
    harm = {
        "one goes": f"DELETE FROM {delayed} WHERE RowVersion = {key}",
        "one comes": f"INSERT INTO {delayed} (Headers, Due) SELECT Headers, Due FROM {delayed}",
        "one gets another Due": f"UPDATE {delayed} SET Due = GETUTCDATE() WHERE RowVersion = {key}",
        "a trigger": f"CREATE TRIGGER [{endpoint.schema}].[late] ON {billing} AFTER INSERT AS"
        " BEGIN DECLARE @Nothing int; SET @Nothing = 1; END",
    }

    with pytest.raises(UnusualBatchError):
        _move(
            endpoint,
            *endpoint.server.claim_keys(rows),
            meanwhile=lambda *_: endpoint.execute(harm[what]),
        )

    waiting = {"one goes": 1, "one comes": 4}.get(what, 2)
    assert len(endpoint.waiting()) == waiting
    assert endpoint.queue_rows("Billing") == endpoint.queue_rows("Shipping") == []
    assert endpoint.fetch(f"SELECT kind FROM {endpoint.own_table('journal')}") == []
    _dispatch(endpoint.context())
    assert len(endpoint.queue_rows("Billing") + endpoint.queue_rows("Shipping")) == waiting


def test_sweep_that_is_closed_after_its_batch_was_read_moves_nothing(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    rows = endpoint.load([delayed_row("Billing", due=endpoint.due_in(-60))])

    with pytest.raises(SweepClosedError):
        _move(
            endpoint,
            *endpoint.server.claim_keys(rows),
            meanwhile=lambda context, run: close_sweep(context.store, run),
        )

    assert (len(endpoint.waiting()), endpoint.queue_rows("Billing")) == (1, [])


@pytest.mark.parametrize("table", ["Billing", "Sales.Orders.Delayed"])
def test_table_with_a_trigger_gives_way_to_the_careful_form(
    sqlserver_endpoint: SqlServerEndpoint, table: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    [row] = endpoint.load([delayed_row("Billing", due=endpoint.due_in(-60))])
    event = "INSERT" if table == "Billing" else "DELETE"
    name = f"[{endpoint.schema}].[{table}]"
    endpoint.execute(
        f"CREATE TRIGGER [{endpoint.schema}].[undoing] ON {name} AFTER {event} AS BEGIN"
        " DECLARE @Nothing int; SET @Nothing = 1; END"
    )

    with pytest.raises(UnusualBatchError, match="has a trigger"):
        _move(endpoint, *endpoint.server.claim_keys([row]))
    _dispatch(endpoint.context())

    assert (len(endpoint.queue_rows("Billing")), endpoint.waiting()) == (1, [])


@pytest.mark.parametrize(
    "headers",
    [
        f'{{"a":"\N{GRINNING FACE}","{FORWARD_DESTINATION}":"Billing"}}',
        f'{{"{FORWARD_DESTINATION}":"Billing","a":"b"}}',
        '{"a":"b"',
    ],
    ids=["two units of UTF-16", "not the last", "no JSON"],
)
def test_odd_headers_give_way_to_the_careful_form(
    sqlserver_endpoint: SqlServerEndpoint, headers: str
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    [row] = endpoint.load([DelayedRow(headers=headers, due=endpoint.due_in(-60))])

    with pytest.raises(UnusualBatchError):
        _move(endpoint, *endpoint.server.claim_keys([row]))
    _dispatch(endpoint.context())

    careful = careful_message(row.headers)
    is_read = not isinstance(careful.headers, MessageError)
    arrived = [one.headers for one in endpoint.queue_rows("Billing")]
    assert arrived == ([careful.headers_text] if is_read else [])
    assert len(endpoint.attempts()) == (0 if is_read else 1)


def test_message_that_fails_after_it_was_read_stays_in_its_back_off(
    sqlserver_endpoint: SqlServerEndpoint,
) -> None:
    endpoint = sqlserver_endpoint.set_up("Billing")
    rows = endpoint.load([delayed_row("Billing", due=endpoint.due_in(-60)) for _ in range(3)])
    keys = endpoint.server.claim_keys(rows)

    def fail(context: SweepContext, _: SweepRun) -> None:
        other, error = open_sweep(context.store), RefusedMessageError("no")
        with context.store.open_task() as task, task.transaction():
            claim = task.claim(other, keys)
            failed = [Failed(each, error, 600.0, is_over_limit=False) for each in claim.messages]
            task.finish(other, 0, failed, claim.server_us)

    with pytest.raises(UnusualBatchError, match="messages have failed"):
        _move(endpoint, *keys, meanwhile=fail)

    assert (len(endpoint.waiting()), endpoint.queue_rows("Billing")) == (3, [])
