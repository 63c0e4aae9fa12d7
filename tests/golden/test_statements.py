"""The statements that are sent to PostgreSQL, as they pass on the wire: their texts and the types
of their parameters; and for sweeps in each form, the statements of each batch, by transaction.

A change that sends another statement, or one more, shows as a difference from the recorded file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duesweep.drivers.statements import statements
from support.endpoint import Endpoint
from support.golden import statement_world as use
from support.golden.recorded import ROOT, compare
from support.golden.statement_world import FORMS, MESSAGES, World, run_form
from support.golden.statements import told_sessions, told_statements
from support.golden.wire import Exchange, RecordingProxy
from support.rabbitmq.broker import Broker
from support.rabbitmq.commands import set_up
from support.rabbitmq.commands import settings as rabbitmq_settings

RECORDED = ROOT / "sql" / "postgresql"
OWN_TABLES = ("sweeps", "journal", "changes", "pauses", "limits", "leases", "attempts", "bindings")


@pytest.fixture
def proxy(endpoint: Endpoint[Any]) -> Iterator[RecordingProxy]:
    proxy = RecordingProxy(int(conninfo_to_dict(endpoint.dsn)["port"] or 0))
    yield proxy
    proxy.close()


@pytest.fixture
def dsn(endpoint: Endpoint[Any], proxy: RecordingProxy) -> str:
    unencrypted = {"sslmode": "disable", "gssencmode": "disable"}
    return make_conninfo(endpoint.dsn, port=proxy.port, **unencrypted)


@pytest.mark.parametrize("form", FORMS)
def test_sweep_in_each_form(
    endpoint: Endpoint[Any], proxy: RecordingProxy, dsn: str, form: str
) -> None:
    world = World.of(endpoint, store__dsn=dsn)
    records = []
    # A slow machine uses its reservation of a limit too late, and reserves it again.
    for _ in range(3 if FORMS[form].tables else 1):
        FORMS[form].prepare(world)
        proxy.sessions()
        run_form(world, FORMS[form])
        records.append(told_sessions(proxy.sessions()))

    compare(RECORDED / f"sweep_{form}", {"sent.txt": min(records, key=len)})


def test_sweep_to_another_database(
    endpoint: Endpoint[Any], proxy: RecordingProxy, dsn: str
) -> None:
    world = World.of(endpoint, store__dsn=dsn, queues__default__dsn=dsn)
    world.store(MESSAGES)

    world.run("sweep")

    compare(RECORDED / "sweep_to_another_database", {"sent.txt": told_sessions(proxy.sessions())})


def test_sweep_to_rabbitmq_with_messages_that_are_not_due_yet(
    endpoint: Endpoint[Any], proxy: RecordingProxy, dsn: str, broker: Broker
) -> None:
    set_up(endpoint, broker, "Billing")
    world = World(endpoint, {"store__dsn": dsn, **rabbitmq_settings(broker)})
    world.store(MESSAGES - 5)
    world.store(5, due_in_seconds=600)

    world.run("sweep", sweep__look_ahead_seconds=1_200)

    compare(RECORDED / "sweep_to_rabbitmq", {"sent.txt": told_sessions(proxy.sessions())})


def test_every_statement_with_the_types_of_its_parameters(
    endpoint: Endpoint[Any], proxy: RecordingProxy, dsn: str
) -> None:
    world = World.of(endpoint, store__dsn=dsn)
    _set_up(world)
    use.sweep(world)
    _meet_others(world)
    for each in (use.look, use.change, use.replay, use.use_queues, use.use_messages, use.tidy_up):
        each(world)

    told = told_statements(proxy.sessions())

    # What only another kind of store sends, or a process that meets another one's lock.
    rest = sorted(set(statements("postgresql")) - set(told.split()))
    told += f"\n-- not sent here: {', '.join(rest)}\n"
    compare(RECORDED / "statements", {"transport.sql": told})


def test_statements_on_another_kind_of_table(
    endpoint: Endpoint[Any], proxy: RecordingProxy, dsn: str
) -> None:
    world = World.of(endpoint.of_kind("sql-persistence"), store__dsn=dsn)
    for each in (use.sweep, use.look, use.change, use.use_messages):
        each(world)

    told = told_statements(_about(world.endpoint.delayed, proxy.sessions()))

    compare(RECORDED / "statements_of_timeouts", {"timeouts.sql": told})


def _about(table: str, sessions: list[list[Exchange]]) -> list[list[Exchange]]:
    return [
        [replace(each, statements=[s for s in each.statements if table in s.text])]
        for session in sessions
        for each in session
    ]


def _set_up(world: World) -> None:
    for table in ("Sales.Orders.Delayed", *map("duesweep_{}".format, OWN_TABLES)):
        world.endpoint.execute(f'DROP TABLE "{table}" CASCADE')
    world.run("setup", queues__default__readable_body=True)
    world.run("sweep", "--set", "store.delayed_table=Orders.Delayed", code=2)


def _meet_others(world: World) -> None:
    """Another session holds messages."""
    due, later = world.store(1), world.store(1, due_in_seconds=use.TOMORROW)
    with _locked(world, due[0]):
        world.run("sweep")
    with _locked(world, later[0]):
        world.run("cancel", *later, code=3)


@contextmanager
def _locked(world: World, key: str) -> Iterator[None]:
    endpoint = world.endpoint
    with endpoint.server.admin.transaction():
        endpoint.execute(f"SELECT FROM {endpoint.delayed} WHERE id = $1::uuid FOR UPDATE", key)
        yield
