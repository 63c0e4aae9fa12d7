"""What `setup` would create, without a server."""

import pytest

from duesweep.config import load
from duesweep.wiring.installing import installer

DSNS = {
    "postgresql": "postgresql://sweeper@db.example/nsb",
    "sqlserver": "Server=db.example,1433;Database=nsb;Uid=sweeper",
    "msmq": "Server=db.example,1433;Database=nsb;Uid=sweeper",
    "sql-persistence": "Server=db.example,1433;Database=nsb;Uid=sweeper",
}
SUBSCRIPTIONS = {
    "postgresql": '"own"."SubscriptionRouting" (',
    "sqlserver": "[nsb].[own].[SubscriptionRouting] (",
}
BODY_STRING = {
    "postgresql": 'ALTER TABLE "own"."{}" ADD COLUMN IF NOT EXISTS bodystring',
    "sqlserver": "ALTER TABLE [nsb].[own].[{}] ADD BodyString",
}


def _script(kind: str, **more: str) -> str:
    settings = {
        "store.kind": kind,
        "store.dsn": DSNS[kind],
        "store.endpoint": "Sales",
        "store.schema": "own",
        "retry.error_queue": "error",
        "ledger.root": "/ledger",
    } | {name.replace("__", "."): value for name, value in more.items()}
    return installer(load(None, [f"{name}={value}" for name, value in settings.items()])).script()


@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
def test_setup_of_a_transport_creates_its_table_of_subscriptions_beside_the_delayed_table(
    kind: str,
) -> None:
    assert SUBSCRIPTIONS[kind] in _script(kind)


@pytest.mark.parametrize("kind", ["msmq", "sql-persistence"])
def test_setup_of_another_store_knows_no_subscriptions(kind: str) -> None:
    assert "SubscriptionRouting" not in _script(kind)


@pytest.mark.parametrize("kind", BODY_STRING)
def test_queues_have_readable_bodies_where_their_section_says_so(kind: str) -> None:
    script = _script(kind, queues__default__readable_body="true")

    assert "odystring" not in _script(kind).lower()
    for queue in ("Sales", "error"):
        assert BODY_STRING[kind].format(queue) in script


def test_queues_on_a_connection_of_their_own_have_readable_bodies_too() -> None:
    dsn = DSNS["postgresql"]
    script = _script("postgresql", queues__default__dsn=dsn, queues__default__readable_body="true")

    assert BODY_STRING["postgresql"].format("error") in script.partition("queues.default.dsn")[2]


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        (
            "sqlserver",
            "CREATE NONCLUSTERED INDEX [Index_Due] ON [nsb].[own].[Sales.Delayed] ([Due])",
        ),
        ("msmq", "CREATE NONCLUSTERED INDEX [Index_Time] ON [nsb].[own].[Sales.delayed] ([Time])"),
    ],
)
def test_script_creates_the_index_on_due_of_a_table_that_is_there(kind: str, index: str) -> None:
    *_, last = _script(kind).split("GO\n")

    assert index in last
    assert "IF NOT EXISTS" in last


def test_script_leaves_sql_persistences_table_alone() -> None:
    assert "TimeoutData" not in _script("sql-persistence")
