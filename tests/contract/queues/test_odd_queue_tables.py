"""Whole sweeps into queue tables that an administrator changed, and from such a delayed table."""

import pytest

from support.endpoint import Endpoint

_COLUMNS = "id uuid, expires timestamp, headers text, body bytea"
_UNUSUAL = '{"NServiceBus.SqlServer.ForwardDestination":"Billing","Colour":"blue"}'
_INSERT = "INSERT INTO public.real (id, headers, body) VALUES (NEW.id, NEW.headers, NEW.body);"
_USUAL, _ALL = 5, 6


def _table(seq: str, rest: str = "") -> list[str]:
    return [f'CREATE TABLE "Billing" ({_COLUMNS}, seq {seq}) {rest}']


def _trigger(statement: str, end: str) -> list[str]:
    return [
        *_table("serial"),
        "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$BEGIN {statement} RETURN {end}; END$$",
        'CREATE TRIGGER act BEFORE INSERT ON "Billing" FOR EACH ROW EXECUTE FUNCTION act()',
    ]


@pytest.mark.parametrize(
    ("statements", "billed", "real"),
    [
        ([*_table("serial"), 'ALTER TABLE "Billing" SET UNLOGGED'], _ALL, 0),
        (
            _table("int GENERATED ALWAYS AS IDENTITY (INCREMENT -1 MINVALUE -2 MAXVALUE -1 CYCLE)"),
            *(_ALL, 0),
        ),
        (_table("int"), _ALL, 0),
        (
            [
                *_table("serial", "PARTITION BY RANGE (seq)"),
                'CREATE TABLE low PARTITION OF "Billing" FOR VALUES FROM (MINVALUE) TO (4)',
                'CREATE TABLE high PARTITION OF "Billing" FOR VALUES FROM (4) TO (MAXVALUE)',
            ],
            *(_ALL, 0),
        ),
        (_trigger(_INSERT, "NEW"), _ALL, _ALL),
        (
            ['CREATE VIEW "Billing" AS SELECT * FROM real'],
            *(0, 0),
        ),
        (_trigger(_INSERT, "NULL"), 0, 0),
    ],
    ids=["unlogged", "cycle", "no default", "partitioned", "doubled", "view", "rerouted"],
)
def test_each_message_is_in_the_queue_or_exhausted(
    endpoint: Endpoint, statements: list[str], billed: int, real: int
) -> None:
    """Of a trigger that puts rows elsewhere, nothing is left there."""
    endpoint.set_up("real", "Shipping")
    endpoint.execute('DROP TABLE IF EXISTS "Billing"')
    for statement in statements:
        endpoint.execute(statement)
    endpoint.delay_many(_USUAL)
    endpoint.delay(headers=_UNUSUAL)
    endpoint.delay("Shipping")

    swept = endpoint.document("sweep", code=0 if billed else 3, retry__max_attempts=1)

    assert (swept["dispatched"], swept["exhausted"]) == (billed + 1, _ALL - billed)
    counted = [
        endpoint.fetch(f"SELECT count(*) AS found FROM {name}")[0].found
        for name in ('"Billing"', "real", '"Shipping"')
    ]
    assert (counted, endpoint.waiting()) == ([billed, real, 1], [])
    assert endpoint.document("audit")["findings"] == []


_DELAYED = '"Sales.Orders.Delayed"'


def test_delayed_table_of_two_levels_of_parts_with_a_computed_column_is_swept(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    for statement in [
        f"DROP TABLE {_DELAYED}",
        f"CREATE TABLE {_DELAYED} (due timestamptz NOT NULL, body bytea, headers text,"
        " size int GENERATED ALWAYS AS (octet_length(body)) STORED,"
        " id uuid NOT NULL DEFAULT gen_random_uuid())"
        " PARTITION BY RANGE (due)",
        f"CREATE TABLE old PARTITION OF {_DELAYED} FOR VALUES FROM (MINVALUE) TO ('2020-01-01')"
        " PARTITION BY HASH (id)",
        f"CREATE TABLE rest PARTITION OF {_DELAYED} DEFAULT PARTITION BY HASH (id)",
        *(
            f"CREATE TABLE {parent}{part} PARTITION OF {parent}"
            f" FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
            for parent in ("old", "rest")
            for part in (0, 1)
        ),
    ]:
        endpoint.execute(statement)
    endpoint.delay_many(10, due_in_seconds=-400_000_000)
    endpoint.delay_many(10)
    endpoint.delay("Nowhere")
    endpoint.delay(headers=_UNUSUAL)
    kept = endpoint.delay(due_in_seconds=3_600)

    swept = endpoint.document("sweep", code=3, retry__max_attempts=1)

    assert (swept["dispatched"], swept["exhausted"], endpoint.waiting()) == (21, 1, [kept])
    assert len(endpoint.queue_rows("Billing")) == 21
    assert endpoint.document("audit")["findings"] == []
    assert endpoint.run("cancel", kept, "--reason", "a test", "--yes").code == 0
    (again,) = endpoint.ledger.rows("changes")
    assert endpoint.run("restore", again.message_key, "--reason", "a test", "--yes").code == 0
    assert len(endpoint.waiting()) == 1
