"""A password shows nowhere: not in `ps`, output, errors, tables, Spark's UI and event log."""

import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.cli import app
from duesweep.config.adapters.context import store_of
from support.commands import run_on_shell as run
from support.endpoint import Endpoint
from support.logins import create_role, password_server
from support.needle import HARDEST, NEEDLE, files_with_needle, watching
from support.ports import free_port
from support.postgresql_server import endpoint_in_postgresql
from support.rabbitmq.broker import Broker

Capture = pytest.CaptureFixture[str]

_ENCODED = quote(HARDEST, safe="")
_ROUTES = """
[[route]]
destination = "Shipping"
connection = "mq"
[[route]]
destination = "*"
connection = "here"
"""
_RIGHTS = ("ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public")


@pytest.fixture
def secretive(
    open_folder: Path, tmp_path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Endpoint]:
    """An endpoint whose sweeper has the hardest password, in the database and on the broker. Some
    of its messages fail.
    """
    broker.create("Shipping")
    broker.api("users/sweeper", "PUT", {"password": HARDEST, "tags": ""})
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    broker.api("permissions/{vhost}/sweeper", "PUT", rights)
    with password_server(open_folder) as server, psycopg.connect(server.dsn, autocommit=True) as db:
        endpoint = endpoint_in_postgresql(server.dsn, tmp_path, db).set_up("Billing")
        create_role(server.dsn, "sweeper", HARDEST)
        for right in _RIGHTS:
            endpoint.execute(f"GRANT {right} TO sweeper")
        monkeypatch.setenv("DUESWEEP_STORE__DSN", _dsn(server.port))
        monkeypatch.setenv("DUESWEEP_QUEUES__MQ__URL", _url(broker))
        yield endpoint


def _dsn(port: int, database: str = "postgres", host: str = "127.0.0.1") -> str:
    return f"postgresql://sweeper:{_ENCODED}@{host}:{port}/{database}"


def _url(broker: Broker, password: str = _ENCODED) -> str:
    return f"amqp://sweeper:{password}@127.0.0.1:{broker.server.amqp}/{broker.vhost}"


def _file(endpoint: Endpoint, **more: object) -> str:
    settings = {"queues__here__schema": "public", "queues__mq__kind": "rabbitmq"}
    file = endpoint.config_file(**settings, retry__max_attempts=1, **more)
    lines = [line for line in file.read_text("utf-8").splitlines() if "store.dsn" not in line]
    file.write_text("\n".join(lines) + _ROUTES, "utf-8")
    return str(file)


def _tables(endpoint: Endpoint) -> str:
    names = ("sweeps", "journal", "attempts", "bindings")
    return str([endpoint.fetch(f"SELECT * FROM {endpoint.own_table(name)}") for name in names])


def _load(endpoint: Endpoint) -> None:
    endpoint.delay_many(20, ["Billing", "Shipping"])
    endpoint.delay("Nowhere")
    endpoint.delay(headers="not JSON")


# The sweep on Spark has a JVM of its own, and the broker of the others.
@pytest.mark.xdist_group("rabbitmq")
@pytest.mark.on_spark
@pytest.mark.parametrize("engine", ["in-process", "spark"])
def test_password_shows_nowhere_in_a_whole_sweep(
    engine: str, secretive: Endpoint, broker: Broker, tmp_path: Path
) -> None:
    _load(secretive)
    events, port = tmp_path / "events", free_port()
    events.mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.logConf": "true",
    }
    options = [part for name, value in spark.items() for part in ("--conf", f"{name}={value}")]
    # Claim keys come over JDBC, and Spark writes the ledger.
    spark_too = {"sweep__spark_from": 0, "ledger__writer": "spark"}
    file = _file(secretive, **(spark_too if engine == "spark" else {}))

    with watching(port if engine == "spark" else None) as watch:
        done = run("sweep", "--json", "--config", file, *options, DUESWEEP_SPARK_LOG="info")

    summary = done.document
    assert (summary["engine"], summary["dispatched"], summary["exhausted"]) == (engine, 20, 2)
    assert broker.count("Shipping") == 10
    assert watch.leaks == []
    assert NEEDLE not in done.told + _tables(secretive)
    assert files_with_needle(secretive.folder / "ledger") == files_with_needle(events) == []
    places = set(watch.seen)
    assert {place for place in places if place.startswith("ps: ")} > {"ps: bash"}
    if engine == "spark":
        # The watched places were read.
        assert {"ui: environment/", "ui: api environment", "ui: SQL/", "ps: java"} <= places
        log = "".join(file.read_text("utf-8") for file in events.rglob("*") if file.is_file())
        assert "JDBCRDD" in log
        assert "SparkListenerEnvironmentUpdate" in log


def test_needle_would_be_found(tmp_path: Path) -> None:
    """The watch finds a needle."""
    with watching() as watch:
        done = run("config", "--set", f"store.name={NEEDLE}")

    assert "ps: python" in "".join(watch.leaks)
    assert done.code == 2
    (tmp_path / "log").write_text(f"x{NEEDLE}", "utf-8")
    assert files_with_needle(tmp_path) == [tmp_path / "log"]


# Only the first three where a setting is wrong.
COMMANDS = (
    *(["sweep", "--json"], ["doctor", "--json", "--no-spark"], ["config"]),
    *(["sweep"], ["doctor", "--no-spark"], ["setup"], ["setup", "--print-sql"]),
    *(["handover", "--dry-run"], ["queue", "peek", "Billing", "--connection", "here"]),
    ["rabbitmq", "delays", "verify", "--connection", "mq"],
)


def _told(capsys: Capture, *arguments: str) -> str:
    """All that a command says, with the whole stack of the error that ends it."""
    capsys.readouterr()
    stack = ""
    try:
        app._run(list(arguments))  # noqa: SLF001 - what main makes a sentence of
    except Exception as error:  # noqa: BLE001 - whatever it is
        stack = "".join(traceback.format_exception(error))
    output = capsys.readouterr()
    return output.out + output.err + stack


def _wrong(port: int, broker: Broker) -> dict[str, tuple[str, str]]:
    """The variable that is wrong, and its value, by the fault."""
    store, mq = "DUESWEEP_STORE__DSN", "DUESWEEP_QUEUES__MQ__URL"
    secret = _ENCODED + "wrong"
    pairs = make_conninfo(user="sweeper", password=HARDEST, host="127.0.0.1", port=port)
    return {
        "nothing": (store, _dsn(port)),
        "password": (store, _dsn(port).replace(_ENCODED, secret)),
        "database": (store, _dsn(port, "absent")),
        "host": (store, _dsn(port, host="nowhere.invalid")),
        "port": (store, _dsn(1)),
        "tls": (store, _dsn(port) + "?sslmode=verify-full&sslrootcert=system"),
        "bare signs": (store, f"postgresql://sweeper:{HARDEST}@127.0.0.1:{port}/postgres"),
        "bare percent": (store, f"postgresql://sweeper:{NEEDLE}%zz@127.0.0.1:{port}/postgres"),
        "unknown keyword": (store, f"{pairs} passwort={NEEDLE}"),
        "unknown parameter": (store, _dsn(port) + f"?passwort={NEEDLE}"),
        "open quote": (store, f"host=127.0.0.1 user=sweeper password='{NEEDLE}"),
        "SQL Server's": (store, f"Server=127.0.0.1,1;Database=d;Uid=u;Pwd={NEEDLE}"),
        "bare at sign": (store, f"postgresql://sweeper:a@{NEEDLE}@127.0.0.1:{port}/postgres"),
        "bare slash": (store, f"postgresql://sweeper:12/{NEEDLE}@127.0.0.1:{port}/postgres"),
        "bare question mark": (store, f"postgresql://sweeper:12?{NEEDLE}@127.0.0.1/postgres"),
        "NUL": (store, _dsn(port).replace(_ENCODED, f"{NEEDLE}%00")),
        "broker's password": (mq, _url(broker, secret)),
        "broker's port": (mq, f"amqp://sweeper:{_ENCODED}@127.0.0.1:1/"),
        "broker's host": (mq, f"amqps://sweeper:{_ENCODED}@nowhere.invalid/"),
        "broker's TLS": (mq, _url(broker).replace("amqp:", "amqps:")),
        "broker's bare signs": (mq, _url(broker, HARDEST)),
        "broker's vhost": (mq, _url(broker).replace(broker.vhost, "absent")),
        "section": ("DUESWEEP_STORE", f'{{"dsn": "{NEEDLE}'),
        "type": ("DUESWEEP_QUEUES__MQ__DSN", f'["{NEEDLE}"]'),
    }


def test_password_shows_in_no_output_no_error_and_no_stack(
    secretive: Endpoint, broker: Broker, capsys: Capture
) -> None:
    _load(secretive)
    file = _file(secretive, breaker__trigger_seconds=0)
    shown, silent = [], []
    for case, (name, value) in _wrong(secretive.server.admin.info.port, broker).items():
        for command in COMMANDS if case == "nothing" else COMMANDS[:3]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(name, value)
                told = _told(capsys, *command, "--config", file)
            shown += [(case, command)] if NEEDLE in told else []
            silent += [] if told else [(case, command)]

    assert (shown, silent) == ([], [])
    assert NEEDLE not in _tables(secretive)


def test_password_in_a_file_is_read_as_it_is(secretive: Endpoint, capsys: Capture) -> None:
    place = {"host": "127.0.0.1", "port": secretive.server.admin.info.port}
    dsn = make_conninfo(**place, dbname="postgres", user="sweeper", password=HARDEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DUESWEEP_STORE__DSN")
        patch.delenv("DUESWEEP_QUEUES__MQ__URL")
        config = secretive.config(store__dsn=dsn)
        with store_of(config).open_driver() as session:
            session.check()

    assert NEEDLE not in _told(capsys, "config", "--config", str(secretive.config_file()))
