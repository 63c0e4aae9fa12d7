"""The moved form of a batch on PostgreSQL: when it is used, tables that it leaves alone, and
transactions that are repeated after a deadlock or a serialization failure.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from duesweep.core.errors import MessageError, TransactionLostError, UnusualBatchError
from duesweep.core.headers import FORWARD_DESTINATION
from duesweep.core.policy import Slicing
from duesweep.drivers.postgresql.session import connect
from duesweep.stores.postgresql_task import PostgreSqlTask
from duesweep.stores.store import SqlStore
from duesweep.stores.sweeps import SweepRun
from duesweep.stores.task import Claim, Forwarded, LeftAlone, Moved
from duesweep.sweep.claim_keys import read_claim_keys
from duesweep_testing.builders import DelayedRow
from duesweep_testing.sweeps import move_into
from support.endpoint import Endpoint
from support.random_headers import careful_message, random_headers
from support.sweeps import dispatch_without_settling

_ARCHIVES = (
    "CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$BEGIN"
    " IF pg_trigger_depth() > 1 THEN RETURN OLD; END IF;"
    ' INSERT INTO archived SELECT OLD.id; DELETE FROM "Sales.Orders.Delayed" WHERE id = OLD.id;'
    " RETURN NULL; END$$"
)
_KEEPS = "CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$"
_HIDES = (
    "CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$BEGIN"
    " UPDATE \"Sales.Orders.Delayed\" SET due = 'infinity' WHERE id = OLD.id; RETURN NULL; END$$"
)
_TRIGGER = (
    'CREATE TRIGGER archive BEFORE DELETE ON "Sales.Orders.Delayed"'
    " FOR EACH ROW EXECUTE FUNCTION archive()"
)
_RULE = (
    'CREATE RULE archive AS ON DELETE TO "Sales.Orders.Delayed" DO INSTEAD'
    " UPDATE \"Sales.Orders.Delayed\" SET due = 'infinity' WHERE id = OLD.id RETURNING *"
)


@pytest.mark.parametrize(
    "statements",
    [[_KEEPS, _TRIGGER], [_ARCHIVES, _TRIGGER], [_HIDES, _TRIGGER], [_RULE]],
    ids=["kept", "archived", "hidden", "rule"],
)
def test_table_that_removes_in_its_own_way_loses_nothing_in_a_whole_sweep(
    endpoint: Endpoint, statements: list[str]
) -> None:
    """The moved form leaves it to the careful one, which says what to do."""
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    for statement in ["CREATE TABLE archived (id uuid)", *statements]:
        endpoint.execute(statement)
    context = endpoint.context()

    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)

    (end,) = endpoint.fetch("SELECT reason FROM duesweep_journal WHERE kind = 'slice'")
    assert "look for triggers or rules on the delayed table" in end.reason
    assert len(endpoint.waiting()) == 3
    assert endpoint.queue_rows("Billing") == []


def test_trigger_on_a_partition_is_seen(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    delayed = '"Sales.Orders.Delayed"'
    for statement in [
        f"DROP TABLE {delayed}",
        f"CREATE TABLE {delayed} (id uuid NOT NULL, headers text, body bytea, due timestamptz)"
        " PARTITION BY HASH (id)",
        f"CREATE TABLE all_of_it PARTITION OF {delayed} FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        _KEEPS,
        "CREATE TRIGGER archive BEFORE DELETE ON all_of_it FOR EACH ROW EXECUTE FUNCTION archive()",
    ]:
        endpoint.execute(statement)
    endpoint.delay_many(3)
    context = endpoint.context()

    with context.store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        with context.store.open_task() as task, task.transaction():
            keys = [str(row.id) for row in endpoint.fetch(f"SELECT id FROM {delayed}")]
            groups = [Forwarded('Billing"}', keys)]
            with pytest.raises(UnusualBatchError, match="a trigger or a rule"):
                move_into(task, run, groups, lambda _: endpoint.addresses.parse("Billing"))


@pytest.mark.parametrize("layout", [{"separators": (",", ":")}, {}, {"indent": 2}])
def test_usual_messages_go_through_the_moved_form_alone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, layout: dict[str, Any]
) -> None:
    """NServiceBus writes them without white space between the tokens, others with it."""
    endpoint.set_up("Billing")
    forwards = [{FORWARD_DESTINATION: "Billing"}] * 3 + [{FORWARD_DESTINATION: '"Billing"'}, {}]
    for forward in forwards:
        endpoint.delay(headers=json.dumps({"a": "ä", **forward}, **layout))
    context = endpoint.context(sweep__batch_rows=2)
    monkeypatch.delattr(PostgreSqlTask, "lock")

    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)

    delivered = json.dumps({"a": "ä"}, **layout).replace("\n}", "}")
    assert [row.headers for row in endpoint.queue_rows("Billing")] == [delivered] * 4
    (own,) = endpoint.queue_rows(endpoint.name)
    assert own.headers == json.dumps({"a": "ä"}, **layout)
    assert endpoint.waiting() == []


@pytest.mark.parametrize("place", ["its own", "another base", "the class above"])
def test_session_that_derives_from_ours_and_claims_otherwise_is_never_asked_to_move(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    class Noting:
        def claim(self, run: SweepRun, claim_keys: Sequence[str], *alone: LeftAlone) -> Claim:
            claimed.extend(claim_keys)
            return super().claim(run, claim_keys, *alone)  # type: ignore[misc,no-any-return]

    class Claiming(PostgreSqlTask):
        def claim(self, run: SweepRun, claim_keys: Sequence[str], *alone: LeftAlone) -> Claim:  # type: ignore[override]
            claimed.extend(claim_keys)
            return super().claim(run, claim_keys, *alone)

    class ByAnotherBase(Noting, PostgreSqlTask):  # type: ignore[misc]
        pass

    class Below(Claiming):
        can_move = True

    kinds = {"its own": Claiming, "another base": ByAnotherBase, "the class above": Below}

    def open_task(store: SqlStore) -> PostgreSqlTask:
        return kinds[place](connect(store.dsn, store.timeouts.task), store)

    claimed: list[str] = []
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    monkeypatch.setattr(SqlStore, "open_task", open_task)
    context = endpoint.context(sweep__batch_rows=3)

    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)

    assert len(claimed) == len(endpoint.queue_rows("Billing")) == 7


def test_moved_messages_are_what_the_careful_form_makes_of_them(endpoint: Endpoint) -> None:
    """Whatever the headers are: by the same bytes, id and type, to the same queue, or not moved."""
    endpoint.set_up("Billing")
    random = Random(31)
    rows = [
        DelayedRow(headers=random_headers(random), body=b"%d" % number, due=endpoint.due_in(-60))
        for number in range(1_500)
    ]
    stored = {row.key: row for row in endpoint.load(rows)}
    context = endpoint.context()
    moved: dict[bytes, tuple[str, str]] = {}

    with context.store.open_driver() as session, context.store.open_task() as task:
        run = session.sweeps.open(session.due.horizon())
        plan = session.due.plan(run.horizon, Slicing(1, least_rows=10_000))
        keys = read_claim_keys(session.due.claim_keys(plan, 0))
        for forward, key in ((g.forward, k) for g in keys.groups(range(1_500)) for k in g.keys):
            row = stored[key[:36]]
            expected = careful_message(row.headers)
            with suppress(UnusualBatchError), task.transaction():
                found = move_into(task, run, [Forwarded(forward, [key])], endpoint.addresses.parse)
                tombstones = found.tombstones
                assert not isinstance(expected.headers, MessageError), row.headers
                assert tombstones.message_ids == [expected.message_id]
                assert tombstones.message_types == [expected.message_type]
                assert tombstones.destinations == [expected.destination or endpoint.name]
                moved[row.body or b""] = tombstones.queues[0], expected.headers_text

    queues = {str(endpoint.addresses.parse(name)): name for name in ("Billing", endpoint.name)}
    arrived = {
        row.body: (queue, row.headers)
        for queue, name in queues.items()
        for row in endpoint.queue_rows(name)
    }
    assert arrived == moved
    assert 600 < len(moved) < 1_200


def test_queue_that_drops_rows_gets_nothing_in_the_moved_form(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', "RETURN NULL;")
    keys = endpoint.delay_many(2)

    with pytest.raises(UnusualBatchError, match="took 0 of 2 messages"):
        _move(endpoint, Forwarded('Billing"}', keys))

    assert endpoint.waiting() == sorted(keys)


def test_message_that_has_another_destination_than_planned_is_not_moved(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Shipping")
    keys = endpoint.delay_many(2, ["Billing", "Shipping"])

    with pytest.raises(UnusualBatchError, match="another destination"):
        _move(endpoint, Forwarded('Billing"}', keys))

    assert endpoint.waiting() == sorted(keys)
    assert endpoint.queue_rows("Billing") == []


@pytest.mark.parametrize(
    ("headers", "forward"),
    [
        (f'{{"a":"b","{FORWARD_DESTINATION}":"Billing"}},"{FORWARD_DESTINATION}":"x', 'Billing"}'),
        (
            f'{{"a":"b", "{FORWARD_DESTINATION}": "Billing"}} ',
            f', "{FORWARD_DESTINATION}": "Billing"}}',
        ),
    ],
)
def test_headers_that_go_on_after_what_was_cut_off_are_not_moved(
    endpoint: Endpoint, headers: str, forward: str
) -> None:
    endpoint.set_up("Billing")
    key = endpoint.delay(headers=headers)

    with pytest.raises(UnusualBatchError, match="another destination"):
        _move(endpoint, Forwarded(forward, [key]))

    assert endpoint.waiting() == [key]


def test_headers_that_break_off_after_the_destination_are_not_moved(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    key = endpoint.delay(headers=f'{{"a":"b","{FORWARD_DESTINATION}":"Billing"')

    with pytest.raises(UnusualBatchError, match="not the last header"):
        _move(endpoint, Forwarded('Billing"', [key]))

    assert endpoint.waiting() == [key]


def test_destinations_that_are_not_last_are_one_group_however_long_the_rest_is(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    for length in (1, 2, 100_000):
        endpoint.delay(headers=f'{{"{FORWARD_DESTINATION}":"Billing","z":"{"y" * length}"}}')
        rest = f'"Billing","z":"{"y" * length}"'
        endpoint.delay(headers=f'{{"a":"b","{FORWARD_DESTINATION}":{rest}}}')

    with endpoint.context().store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        plan = session.due.plan(run.horizon, Slicing(1, least_rows=100))
        found = read_claim_keys(session.due.claim_keys(plan, 0))

    assert sorted(str(forward) for forward in found.forwards) == ["", "", "", "?", "?", "?"]


def test_headers_that_are_empty_after_the_cut_are_not_moved(endpoint: Endpoint) -> None:
    """Also next to others, of which the names are known by then."""
    endpoint.set_up("Billing")
    _move(endpoint, Forwarded('Billing"}', endpoint.delay_many(2)))
    keys = endpoint.delay_many(2)
    keys.append(endpoint.delay(headers=f'{{ ,"{FORWARD_DESTINATION}":"Billing"}}'))

    with pytest.raises(UnusualBatchError, match="not the last header"):
        _move(endpoint, Forwarded('Billing"}', keys))

    assert endpoint.waiting() == sorted(keys)


@pytest.mark.parametrize("quote", ['\\"', "\\u0022"])
def test_address_with_quotes_goes_through_the_moved_form_alone(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, quote: str
) -> None:
    endpoint.set_up("Billing")
    address = f"{quote}public{quote}.{quote}Billing{quote}"
    endpoint.delay(headers=f'{{"a":"b","{FORWARD_DESTINATION}":"{address}"}}')
    monkeypatch.delattr(PostgreSqlTask, "lock")

    context = endpoint.context()
    with context.store.open_driver() as session:
        dispatch_without_settling(context, session)

    assert len(endpoint.queue_rows("Billing")) == 1


def _planned(endpoint: Endpoint) -> list[Forwarded]:
    with endpoint.context().store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        plan = session.due.plan(run.horizon, Slicing(1, least_rows=100))
        keys = read_claim_keys(session.due.claim_keys(plan, 0))
        return keys.groups(keys.places(in_order=True))


def test_messages_are_found_without_the_index_of_their_keys(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3)
    delayed = '"Sales.Orders.Delayed"'

    moved = _move(endpoint, *_planned(endpoint))

    assert len(moved.tombstones.keys) == len(endpoint.queue_rows("Billing")) == 3
    endpoint.execute("SELECT pg_stat_force_next_flush()")
    (keys,) = endpoint.fetch(
        f"SELECT idx_scan FROM pg_stat_user_indexes WHERE relid = '{delayed}'::regclass"
        " AND indexrelid IN (SELECT conindid FROM pg_constraint WHERE contype = 'p')"
    )
    assert keys.idx_scan == 0


def test_other_message_in_the_place_of_a_planned_one_is_not_moved(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    planned = endpoint.delay_many(1)
    groups = _planned(endpoint)
    endpoint.execute('TRUNCATE "Sales.Orders.Delayed"')
    other = endpoint.delay()

    with pytest.raises(UnusualBatchError, match="other messages are in the places"):
        _move(endpoint, *groups)

    assert planned != [other]
    assert endpoint.waiting() == [other]
    assert endpoint.queue_rows("Billing") == []


def test_message_that_has_left_its_place_since_the_plan_goes_through_the_careful_form(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(3)
    groups = _planned(endpoint)
    endpoint.execute('UPDATE "Sales.Orders.Delayed" SET body = body')

    with pytest.raises(UnusualBatchError, match="changed since the plan"):
        _move(endpoint, *groups)

    assert endpoint.waiting() == sorted(keys)


@pytest.mark.parametrize("parent", ["PARTITION BY HASH (id)", ""], ids=["partition", "child"])
def test_table_with_parts_is_moved_by_keys(endpoint: Endpoint, parent: str) -> None:
    """Several rows of such a table have the same place, each in its part."""
    endpoint.set_up("Billing")
    delayed = '"Sales.Orders.Delayed"'
    part = f"PARTITION OF {delayed} FOR VALUES WITH (MODULUS 2, REMAINDER %d)"
    child = f"(LIKE {delayed}) INHERITS ({delayed}) -- %d"
    for statement in [
        f"DROP TABLE {delayed}",
        f"CREATE TABLE {delayed} (id uuid NOT NULL, headers text, body bytea, due timestamptz)"
        f" {parent}",
        *(f"CREATE TABLE part{n} {(part if parent else child) % n}" for n in range(2)),
    ]:
        endpoint.execute(statement)
    keys = endpoint.delay_many(20)
    if not parent:
        endpoint.execute(f"INSERT INTO part0 SELECT * FROM ONLY {delayed} ORDER BY id LIMIT 10")
        endpoint.execute(f"DELETE FROM ONLY {delayed} WHERE id IN (SELECT id FROM part0)")

    with endpoint.context().store.open_driver() as session:
        plan = session.due.plan(session.due.horizon(), Slicing(7))
        slices = [session.due.claim_keys(plan, number) for number in range(len(plan.planned))]
    groups = _planned(endpoint)
    lengths = {len(key) for group in groups for key in group.keys}
    moved = _move(endpoint, *groups)

    read = [key[:36] for rows in slices for key in read_claim_keys(rows).keys]
    assert sorted(read) == sorted(keys)
    assert len(moved.tombstones.keys) == len(endpoint.queue_rows("Billing")) == 20
    assert 36 in lengths
    assert endpoint.waiting() == []


def test_messages_are_moved_in_the_order_of_their_due_under_ids_of_their_own(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    rows = [
        DelayedRow(
            key=f"{number:08x}-5aaa-11f0-8000-0242ac120002",
            body=b"%d" % number,
            due=endpoint.due_in(number - 500),
        )
        for number in (3, 1, 2, 0, 5, 4)
    ]
    endpoint.load(rows)

    _move(endpoint, Forwarded('Billing"}', [row.key for row in rows]))

    assert [row.body for row in endpoint.queue_rows("Billing")] == [b"%d" % n for n in range(6)]


def test_time_of_a_moved_batch_is_after_its_messages_arrived(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.execute("CREATE TABLE arrivals (us bigint)")
    note = "INSERT INTO arrivals VALUES (extract(epoch FROM clock_timestamp()) * 1000000);"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', f"{note} RETURN NEW;")

    moved = _move(endpoint, Forwarded('Billing"}', [endpoint.delay()]))

    (arrival,) = endpoint.fetch("SELECT us FROM arrivals")
    assert moved.server_us >= arrival.us


def _move(endpoint: Endpoint, *groups: Forwarded) -> Moved:
    context = endpoint.context()
    with (
        context.store.open_driver() as session,
        context.store.open_task() as task,
        task.transaction(),
    ):
        run = session.sweeps.open(session.due.horizon())
        moved = move_into(task, run, groups, endpoint.addresses.parse)
        task.finish_moved(run, 0, moved, moved.server_us)
    return moved


_LOST = ("40P01", "40001")


def _lose(endpoint: Endpoint, table: str, when: str, state: str, times: int) -> None:
    """The first `times` changes of a table's rows are given up. Sequences keep their counts."""
    endpoint.execute("CREATE SEQUENCE losses")
    give_up = f"RAISE EXCEPTION 'given up' USING ERRCODE = '{state}';"
    lose = f"IF nextval('losses') <= {times} THEN {give_up} END IF; RETURN NEW;"
    endpoint.server.add_trigger(f"BEFORE {when}", table, lose, each="STATEMENT")


@pytest.mark.parametrize("state", _LOST)
def test_batch_that_is_given_up_is_claimed_again(endpoint: Endpoint, state: str) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(7)
    context = endpoint.context(sweep__batch_rows=3)
    _lose(endpoint, '"Billing"', "INSERT", state, times=3)

    with context.store.open_driver() as session:
        run = dispatch_without_settling(context, session)
        _, done = session.sweeps.progress(run.sweep_id)

    assert done == len(endpoint.queue_rows("Billing")) == 7
    assert endpoint.waiting() == []
    assert endpoint.attempts() == {}
    (end,) = endpoint.fetch("SELECT reason FROM duesweep_journal WHERE kind = 'slice'")
    assert end.reason is None


@pytest.mark.parametrize("state", _LOST)
def test_statement_of_the_driver_that_is_given_up_is_done_again(
    endpoint: Endpoint, state: str
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    context = endpoint.context()
    _lose(endpoint, "duesweep_sweeps", "UPDATE OR INSERT OR DELETE", state, times=2)

    with context.store.open_driver() as session:
        run = session.sweeps.open(session.due.horizon())
        endpoint.execute("SELECT setval('losses', 1)")
        assert session.sweeps.close(run.sweep_id, abandoned=False, remaining=1)
        endpoint.execute("SELECT setval('losses', 1)")
        session.journal.seal(run.sweep_id)
        endpoint.execute("SELECT setval('losses', 1)")
        session.journal.delete_settled(run.sweep_id)

    assert endpoint.fetch("SELECT FROM duesweep_sweeps") == []


def test_statement_that_is_given_up_every_time_is_a_passing_fault(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    context = endpoint.context()
    _lose(endpoint, "duesweep_sweeps", "INSERT", "40P01", times=100)

    with context.store.open_driver() as session, pytest.raises(TransactionLostError) as failure:
        session.sweeps.open(session.due.horizon())

    assert failure.value.transient
    (losses,) = endpoint.fetch("SELECT last_value FROM losses")
    assert losses.last_value == 6
