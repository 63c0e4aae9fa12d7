"""A sweep takes what NServiceBus's own predicate would move, in the writers' time zone.

A zone of the server's own making, with a clock change at this very hour, stands for the two days
in a year on which real zones have one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.config.adapters.context import sweep_context
from duesweep.core.errors import ConfigError
from duesweep.operations.demo.server import EmbeddedServer
from duesweep.sweep.job import Engine, SweepContext
from duesweep_testing.builders import DelayedRow, delayed_row
from support.commands import run_on_shell
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.ports import free_port
from support.postgresql_server import endpoint_in_postgresql
from support.sweeps import run_sweep

_PREDICATE = "SELECT id::text FROM {} WHERE due < now() AT TIME ZONE 'UTC' ORDER BY 1"


def _changing_zone(*, forward: bool) -> str:
    """A POSIX time zone, west of UTC, whose clocks change about now.

    If the stored clock reads UTC's time as local, the change lies where UTC's clock reads it.
    """
    now = datetime.now(UTC)
    today = now.timetuple().tm_yday - 1
    change = f"{today}/{now.hour}"
    other = f"{(today + 180) % 365}/2"
    rule = f"{change},{other}" if forward else f"{other},{change}"
    return f"AAA5BBB4,{rule}"


@contextmanager
def endpoint_in(zone: str, folder: Path) -> Iterator[Endpoint]:
    folder.mkdir()
    with (
        EmbeddedServer(folder, port=free_port(), trusts_all=True, TimeZone=f"'{zone}'") as server,
        psycopg.connect(server.dsn, autocommit=True) as admin,
    ):
        yield endpoint_in_postgresql(server.dsn, folder, admin)


def rows_around(now: datetime) -> list[DelayedRow]:
    """Every ten minutes of half a day to either side; none comes due in the next five."""
    return [delayed_row(due=now + timedelta(minutes=10 * step + 5)) for step in range(-72, 73)]


def predicate_moves(endpoint: Endpoint) -> list[str]:
    """The messages that a writer's session would move."""
    with psycopg.connect(endpoint.dsn) as writer:
        return [row[0] for row in writer.execute(_PREDICATE.format(endpoint.delayed).encode())]


def assert_swept_is_what_the_predicate_moves(
    engine: Engine, endpoint: Endpoint, context: SweepContext
) -> None:
    stored = endpoint.waiting()
    expected = predicate_moves(endpoint)
    assert 0 < len(expected) < len(stored)

    summary = run_sweep(context, engine)

    assert sorted(set(stored) - set(endpoint.waiting())) == expected
    assert summary.dispatched == len(expected)
    ledger = LedgerReader(endpoint.folder / "ledger")
    for row in ledger.rows("tombstones"):
        assert row.lateness_ms >= 0
        assert row.lateness_ms == (row.dispatched_at - row.due) // timedelta(milliseconds=1)


ZONES = {
    "UTC": "UTC",
    "New York": "America/New_York",
    "Kolkata": "Asia/Kolkata",
    "the clock goes forward now": _changing_zone(forward=True),
    "the clock goes back now": _changing_zone(forward=False),
}


@pytest.mark.parametrize("zone", ZONES)
def test_what_the_transports_predicate_would_move_is_swept(
    zone: str, engine: Engine, open_folder: Path
) -> None:
    with endpoint_in(ZONES[zone], open_folder / "server") as endpoint:
        endpoint.set_up("Billing")
        endpoint.load(rows_around(endpoint.due_in(0)))

        context = endpoint.context()
        assert_swept_is_what_the_predicate_moves(engine, endpoint, context)


def test_no_zone_but_the_writers_has_a_say(
    engine: Engine, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint_in("America/New_York", open_folder / "server") as endpoint:
        endpoint.set_up("Billing")
        endpoint.load(rows_around(endpoint.due_in(0)))
        endpoint.execute("CREATE ROLE sweeper LOGIN SUPERUSER")
        endpoint.execute("ALTER ROLE sweeper SET TimeZone = 'Asia/Tokyo'")
        sweeper = make_conninfo(endpoint.dsn, user="sweeper")
        # The process's zone; the JVM's is Asia/Kolkata in the test of the command, below.
        monkeypatch.setenv("PGTZ", "Australia/Sydney")
        expected = _predicate_in_server_zone(endpoint)

        summary = run_sweep(endpoint, engine, store__dsn=sweeper)

        assert summary.dispatched == len(expected)
        assert not set(expected) & set(endpoint.waiting())


def _predicate_in_server_zone(endpoint: Endpoint) -> list[str]:
    # The administrator's session was opened before PGTZ was set: its zone is the server's.
    return [row[0] for row in endpoint.fetch(_PREDICATE.format(endpoint.delayed))]


@pytest.mark.parametrize("setting", ["DATABASE {database}", "ROLE {writer}"])
def test_zone_of_the_writers_role_or_database_goes_over_the_servers(
    setting: str, engine: Engine, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    database = endpoint.server.admin.info.dbname
    writer = endpoint.server.role("writer", f"INSERT, SELECT ON {endpoint.delayed}")
    name = psycopg.conninfo.conninfo_to_dict(writer)["user"]
    target = setting.format(database=database, writer=name)
    endpoint.execute(f"ALTER {target} SET TimeZone = 'America/New_York'")
    with psycopg.connect(writer) as session:
        now = session.execute("SELECT timestamptz(now() AT TIME ZONE 'UTC')").fetchone()
    assert now is not None
    endpoint.load(rows_around(now[0]))

    assert_swept_is_what_the_predicate_moves(
        engine,
        replace(endpoint, server=replace(endpoint.server, dsn=writer)),
        endpoint.context(),
    )


def test_roles_that_disagree_are_refused_and_the_setting_decides(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    for suffix, zone in (("one", "UTC"), ("other", "America/New_York")):
        dsn = endpoint.server.role(suffix, f"INSERT ON {endpoint.delayed}")
        name = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
        endpoint.execute(f"ALTER ROLE {name} SET TimeZone = '{zone}'")

    with (
        endpoint.context().store.open_driver() as session,
        pytest.raises(ConfigError, match=r"store\.writer_time_zone"),
    ):
        session.due.horizon()
    config = endpoint.config(store__writer_time_zone="America/New_York")
    with sweep_context(config).store.open_driver() as session:
        horizon = session.due.horizon()
    assert horizon.shift_us in {4 * 3_600_000_000, 5 * 3_600_000_000}


def test_roles_with_other_names_of_one_clock_agree(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    for suffix, zone in (("one", "Etc/UTC"), ("other", "GMT"), ("numbered", "0")):
        dsn = endpoint.server.role(suffix, f"INSERT ON {endpoint.delayed}")
        name = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
        endpoint.execute(f"ALTER ROLE {name} SET TimeZone = '{zone}'")
    endpoint.server.role("default", f"INSERT ON {endpoint.delayed}")

    with endpoint.context().store.open_driver() as session:
        assert session.due.horizon().shift_us == 0


@pytest.mark.parametrize("by", ["PGTZ", "PGOPTIONS", "dsn"])
def test_zone_of_the_sweepers_dsn_or_environment_does_not_hide_the_servers(
    by: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing")
    # It may not open a replication session, which no setting hides the zone from.
    dsn = endpoint.server.role("sweeper", "ALL ON ALL TABLES IN SCHEMA public")
    options = "-c TimeZone=Asia/Tokyo"
    if by == "dsn":
        dsn = make_conninfo(dsn, options=options)
    else:
        monkeypatch.setenv(by, {"PGTZ": "Asia/Tokyo", "PGOPTIONS": options}[by])

    with endpoint.context(store__dsn=dsn).store.open_driver() as session:
        try:
            horizon = session.due.horizon()
        except ConfigError as error:
            pytest.fail(f"It does not see the server's zone: {error}")

    assert horizon.shift_us == 0


def test_zone_hidden_by_the_sweepers_own_is_refused_where_it_may_not_be_asked(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    dsn = endpoint.server.role("sweeper", "ALL ON ALL TABLES IN SCHEMA public")
    name = psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    endpoint.execute(f"ALTER ROLE {name} SET TimeZone = 'Asia/Tokyo'")

    with (
        endpoint.context(store__dsn=dsn).store.open_driver() as session,
        pytest.raises(ConfigError, match="hides the server's"),
    ):
        session.due.horizon()


def test_owner_that_sweeps_is_a_writer_too(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    owner = endpoint.server.role("owner", "ALL ON ALL TABLES IN SCHEMA public")
    name = psycopg.conninfo.conninfo_to_dict(owner)["user"]
    endpoint.execute(f"ALTER TABLE {endpoint.delayed} OWNER TO {name}")
    endpoint.execute(f"ALTER ROLE {name} SET TimeZone = 'Asia/Kolkata'")
    other = endpoint.server.role("other", f"INSERT ON {endpoint.delayed}")
    other_name = psycopg.conninfo.conninfo_to_dict(other)["user"]
    endpoint.execute(f"ALTER ROLE {other_name} SET TimeZone = 'UTC'")

    with (
        endpoint.context(store__dsn=owner).store.open_driver() as session,
        pytest.raises(ConfigError, match=r"store\.writer_time_zone"),
    ):
        session.due.horizon()


@pytest.mark.long
def test_command_with_a_jvm_in_kolkata_sweeps_a_server_in_new_york(open_folder: Path) -> None:
    with endpoint_in("America/New_York", open_folder / "server") as endpoint:
        endpoint.set_up("Billing")
        endpoint.load(rows_around(endpoint.due_in(0)))
        stored, expected = set(endpoint.waiting()), predicate_moves(endpoint)
        config = str(endpoint.config_file(sweep__spark_from=0))

        done = run_on_shell(
            "sweep", "--config", config, JAVA_TOOL_OPTIONS="-Duser.timezone=Asia/Kolkata"
        )

        assert done.code == 0, done.err
        assert sorted(stored - set(endpoint.waiting())) == expected
