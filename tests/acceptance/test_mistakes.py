"""Common mistakes: the exit code, what happened, where, and what to do.

Row 46, another Unix user, is in test_checkout.py.
"""

import json
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.cli.app import main
from duesweep.demo.server import EmbeddedServer
from support import spark_submit
from support.endpoint import Endpoint
from support.password_server import create_role, password_server

Capture = pytest.CaptureFixture[str]

STORE = '[store]\nendpoint = "Sales"\ndsn = "postgresql://sweeper@127.0.0.1:1/nsb"\n'
LEDGER = '[ledger]\nroot = "/ledger"\n'
WHOLE = STORE + LEDGER
ROWS_ELSEWHERE = {46}


@dataclass(frozen=True)
class Mistake:
    """A row of the table. What the error has to hold: `what` happened, `where`, what to `do`.
    `first`: only the first line may say so, as the cause; `without`: what must not be said.
    """

    row: int
    arguments: Sequence[str]
    what: str
    where: str
    do: str
    toml: str | None = WHOLE
    variables: Mapping[str, str] = field(default_factory=dict)
    code: int = 2
    without: str | None = None

    def __str__(self) -> str:
        return f"{self.row}-{self.what[:30]}"


SETTINGS = [
    Mistake(
        1,
        ["sweep"],
        "no setting store.endpont",
        "duesweep.toml:2:",
        "did you mean store.endpoint?",
        WHOLE.replace("endpoint", "endpont"),
        without="not set",
    ),
    Mistake(
        2,
        ["sweep"],
        "no setting stroe",
        "duesweep.toml:1:",
        "did you mean store?",
        WHOLE.replace("[store]", "[stroe]"),
        without="not set",
    ),
    Mistake(
        3,
        ["sweep"],
        "is set in the environment",
        "DUESWEEP_STORE_DSN",
        "DUESWEEP_STORE__DSN?",
        variables={"DUESWEEP_STORE_DSN": "x"},
    ),
    Mistake(
        4,
        ["sweep"],
        "no setting store.dns",
        "DUESWEEP_STORE__DNS in the environment",
        "did you mean store.dsn?",
        variables={"DUESWEEP_STORE__DNS": "x"},
    ),
    Mistake(
        12,
        ["sweep"],
        "cannot be read",
        "dsn",
        "percent-encoded",
        WHOLE.replace("sweeper@", "sweeper:s3@cret@"),
        without="cret@",
    ),
    Mistake(
        13,
        ["sweep"],
        "store.dsn is not set",
        "duesweep.toml:1:",
        "DUESWEEP_STORE__DSN",
        '[store]\nendpoint = "Sales"\n' + LEDGER,
    ),
    Mistake(14, ["sweep"], "There is no duesweep.toml in ", "{folder}", "--config", None),
    Mistake(
        15, ["sweep", "--config", "absent.toml"], "no configuration file", "absent.toml", "--config"
    ),
    Mistake(
        16,
        ["sweep"],
        "'postgres'",
        "duesweep.toml:2:",
        "did you mean postgresql?",
        WHOLE.replace("[store]", '[store]\nkind = "postgres"'),
    ),
    Mistake(
        17,
        ["sweep"],
        "contradict each other",
        "duesweep.toml:2:",
        "correct the one",
        WHOLE.replace("[store]", '[store]\nkind = "sqlserver"'),
    ),
    Mistake(
        17,
        ["sweep"],
        "dsn is one of SQL Server",
        "duesweep.toml:4:",
        "correct the one",
        'store.endpoint = "S"\nstore.dsn = "Server=h;Database=d"\nledger.root = "/l"\n'
        'store.kind = "postgresql"\n',
    ),
    Mistake(
        28,
        ["sweep"],
        "two spellings of one setting",
        "DUESWEEP_STORE__DSN and duesweep_store__dsn",
        "keep DUESWEEP_STORE__DSN",
        variables={"DUESWEEP_STORE__DSN": "x", "duesweep_store__dsn": "y"},
    ),
    Mistake(
        29,
        ["sweep"],
        "no setting queue.default",
        "duesweep.toml:6:",
        "did you mean queues.default?",
        WHOLE + '[queue.default]\ndsn = "x"\n',
    ),
    Mistake(
        30,
        ["sweep"],
        "no setting routes",
        "duesweep.toml:6:",
        "did you mean route?",
        WHOLE + '[[routes]]\ndestination = "*"\n',
    ),
    Mistake(
        31,
        ["sweep"],
        "[store] is there twice",
        "duesweep.toml is not valid TOML",
        "under one [store]",
        WHOLE + "[store]\n",
    ),
    Mistake(
        32, ["sweep"], "Expected '=' after a key", "line 2", "key = value", "[store]\nendpoint\n"
    ),
    Mistake(
        33,
        ["sweep"],
        "it is 0, and must be at least 1",
        "duesweep.toml:7:",
        "retry.max_attempts",
        WHOLE + "[retry]\nmax_attempts = 0\n",
    ),
    Mistake(
        34,
        ["sweep"],
        "it is five, and must be a whole number",
        "DUESWEEP_RETRY__MAX_ATTEMPTS in the environment",
        "retry.max_attempts",
        variables={"DUESWEEP_RETRY__MAX_ATTEMPTS": "five"},
    ),
    Mistake(
        35,
        ["sweep", "--set", "store.dsn=postgresql://u:s3cret@h/d"],
        "password",
        "--set",
        "DUESWEEP_STORE__DSN",
        without="s3cret",
    ),
    Mistake(36, ["swep"], "No such command", "swep", "sweep"),
    Mistake(37, ["sweep", "--dry-run"], "No such option", "--dry-run", "duesweep plan"),
    Mistake(38, ["list", "--due-before", "tomorrow"], "is not a time", "'tomorrow'", "2026-12-01"),
    Mistake(39, ["list", "--limit", "0"], "Invalid value", "--limit", "greater than or equal to 1"),
    Mistake(
        40,
        ["doctor", "--ignore", "tables"],
        "There is no check",
        "tables",
        "did you mean table-shape?",
    ),
    Mistake(
        41,
        ["sweep"],
        "only RabbitMQ can hold messages",
        "duesweep.toml:7:",
        "remove the setting",
        WHOLE + "[sweep]\nlook_ahead_seconds = 60\n",
    ),
    Mistake(43, ["handover"], "nothing can be handed over", "[queues]", "of kind rabbitmq"),
    Mistake(
        45,
        ["setup", "--config", "fleet.toml"],
        "settings of 2 endpoints",
        "fleet.toml",
        "--config fleet.toml#Billing",
    ),
]


@pytest.mark.parametrize("mistake", SETTINGS, ids=str)
def test_mistake_in_settings_or_options_is_told(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value)
    if mistake.toml is not None:
        Path("duesweep.toml").write_text(mistake.toml)
    Path("fleet.toml").write_text(
        f'{LEDGER.replace("[", "[defaults.")}[[endpoint]]\nstore.endpoint = "Billing"\n'
        '[[endpoint]]\nstore.endpoint = "Sales"\n'
    )

    code = main(list(mistake.arguments))

    _assert_told(mistake, code, capsys.readouterr().err, folder=tmp_path)


def _assert_told(mistake: Mistake, code: int, told: str, **names: object) -> None:
    first, *others = told.rstrip("\n").split("\n")
    assert code == mistake.code, told
    for words in (mistake.what, mistake.where, mistake.do):
        assert words.format(**names) in first, told
    assert "Traceback" not in told
    assert "correct it" not in told
    assert all(line.startswith("duesweep: ") for line in (first, *others)), told
    assert mistake.without is None or mistake.without not in told, told


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="duesweep-tests-") as folder:
        # Not in pytest's own folder: another run of pytest closes it to the server's user.
        Path(folder).chmod(0o755)
        with password_server(Path(folder)) as server:
            create_role(server.dsn, "sweeper", "right")
            yield server


@dataclass(frozen=True)
class World:
    """What a mistake at a service is made with."""

    endpoint: Endpoint[Any]
    strict: EmbeddedServer

    def with_dsn(self, dsn: str) -> Path:
        """A file with another dsn."""
        return self.endpoint.config_file(store__dsn=dsn)

    def with_password(self, password: str) -> Path:
        """A file with this password, for a server that asks for one."""
        login = f"sweeper{password}@127.0.0.1:{self.strict.port}"
        return self.with_dsn(f"postgresql://{login}/postgres")

    def role(self, *rights: str) -> str:
        """The dsn of a role with these rights."""
        return str(self.endpoint.server.role("sweeper", *rights))


def _set_up(world: World, **settings: object) -> Path:
    world.endpoint.set_up()
    return world.endpoint.config_file(**settings)


def _unlike(world: World) -> Path:
    world.endpoint.set_up()
    return world.endpoint.named("Sales.Order").config_file()


def _wrong_schema(world: World) -> Path:
    world.endpoint.set_up()
    return world.endpoint.config_file(store__schema="sales")


def _without_update(world: World) -> Path:
    world.endpoint.set_up()
    return world.with_dsn(world.role(f"SELECT, DELETE ON {world.endpoint.delayed}"))


def _without_insert(world: World) -> Path:
    world.endpoint.set_up("Billing")
    queue = '"public"."Billing"'
    return world.with_dsn(world.role(f"SELECT ON {queue}"))


def _without_insert_of_delayed(world: World) -> Path:
    world.endpoint.set_up("Billing")
    return world.with_dsn(world.role(f"SELECT ON {world.endpoint.delayed}"))


def _ledger_moved(world: World) -> Path:
    world.endpoint.set_up("Billing")
    world.endpoint.delay("Billing")
    assert main(["sweep", "--config", str(world.endpoint.config_file())]) == 0
    world.endpoint.delay("Billing")
    return world.endpoint.config_file(ledger__root=str(world.endpoint.folder / "other"))


def _ledger_not_writable(world: World) -> Path:
    world.endpoint.set_up()
    world.endpoint.delay()
    return world.endpoint.config_file(ledger__root="/proc/ledger")


def _waiting(world: World) -> Path:
    world.endpoint.set_up("Billing")
    world.endpoint.delay("Billing", due_in_seconds=3600)
    return world.endpoint.config_file()


SEND = ["queue", "send", "Billing", "--body", "x"]
AT_SERVICES: list[tuple[Mistake, Callable[[World], Path]]] = [
    (
        Mistake(
            5,
            ["sweep"],
            "refuses the session: FATAL: password authentication failed",
            "127.0.0.1",
            "correct user or password in the dsn",
            without="connection failed:",
        ),
        lambda w: w.with_password(":wrong"),
    ),
    (
        Mistake(
            6,
            ["sweep"],
            'role "absent" does not exist',
            "refuses the session",
            "correct the user",
            without="pg_hba",
        ),
        lambda w: w.with_dsn(make_conninfo(w.endpoint.dsn, user="absent")),
    ),
    (
        Mistake(
            7,
            ["sweep"],
            'database "absent" does not exist',
            "/absent",
            "correct the database",
            without="pg_hba",
        ),
        lambda w: w.with_dsn(make_conninfo(w.endpoint.dsn, dbname="absent")),
    ),
    (
        Mistake(
            8,
            ["sweep"],
            "asks for a password",
            "127.0.0.1",
            "DUESWEEP_STORE__DSN",
            without="check that it runs",
        ),
        lambda w: w.with_password(""),
    ),
    (
        Mistake(9, ["sweep"], "refused", "127.0.0.1:1/", "check that it runs", code=4, without="?"),
        lambda w: w.with_dsn("postgresql://postgres@127.0.0.1:1/postgres"),
    ),
    (
        Mistake(
            10,
            ["sweep"],
            "resolve host",
            "nowhere.invalid",
            "check the host's name",
            code=4,
            without="check that it runs",
        ),
        lambda w: w.with_dsn("postgresql://postgres@nowhere.invalid/postgres"),
    ),
    (
        Mistake(
            18,
            ["sweep"],
            'no delayed table "public"."Sales.Order.Delayed"',
            "store.endpoint",
            'did you mean "public"."Sales.Orders.Delayed"?',
        ),
        _unlike,
    ),
    (
        Mistake(
            19,
            ["sweep"],
            'no delayed table "sales"',
            "store.schema",
            'did you mean "public"."Sales.Orders.Delayed"?',
        ),
        _wrong_schema,
    ),
    (
        Mistake(
            20, ["sweep"], 'no queue table "public"."failed"', "retry.error_queue", "create it"
        ),
        lambda w: _set_up(w, retry__error_queue="failed"),
    ),
    (Mistake(21, ["sweep"], "lacks UPDATE", 'Sales.Orders.Delayed"', "doctor"), _without_update),
    (
        Mistake(22, ["setup"], "may not create tables", '"public"', "setup --print-sql"),
        lambda w: w.with_dsn(w.role()),
    ),
    (
        Mistake(
            23,
            SEND,
            "permission denied for table Billing",
            "42501",
            'run GRANT INSERT ON "public"."Billing" TO "test_',
        ),
        _without_insert,
    ),
    (
        Mistake(
            23,
            [*SEND, "--delay", "2s"],
            "permission denied for table Sales.Orders.Delayed",
            "42501",
            'GRANT INSERT ON "public"."Sales.Orders.Delayed" TO "test_',
        ),
        _without_insert_of_delayed,
    ),
    (
        Mistake(
            23,
            ["queue", "receive", "Billing"],
            "permission denied for table Billing",
            "42501",
            'GRANT SELECT, UPDATE, DELETE ON "public"."Billing"',
        ),
        _without_insert,
    ),
    (
        Mistake(
            23,
            ["queue", "purge", "Billing", "--yes"],
            "permission denied for table Billing",
            "42501",
            'DELETE ON "public"."Billing"',
        ),
        _without_insert,
    ),
    (
        Mistake(24, ["sweep"], "cannot be written", "/proc/ledger", "check ledger.root"),
        _ledger_not_writable,
    ),
    (Mistake(25, ["sweep"], "belongs to ledger", "/other", "setup --rebind"), _ledger_moved),
    (
        Mistake(
            44,
            ["cancel", "--destination", "Biling", "--reason", "x", "--yes"],
            "o waiting message is for the destination",
            "'Biling'",
            "did you mean 'Billing'?",
        ),
        _waiting,
    ),
]
ON_SPARK = Mistake(
    26, ["sweep"], "there is no such catalog schema", "ledger.root is 'ledger'", "./ledger"
)
# By the command of a checkout, which looks for Java.
BY_SHELL = Mistake(
    27,
    ["doctor"],
    "Spark needs Java 17 or 21",
    "/nonexistent/bin/java",
    "install",
    variables={"JAVA_HOME": "/nonexistent"},
)


@pytest.mark.parametrize(
    ("mistake", "prepare"), AT_SERVICES, ids=[str(mistake) for mistake, _ in AT_SERVICES]
)
def test_mistake_at_a_service_is_told(
    mistake: Mistake,
    prepare: Callable[[World], Path],
    endpoint: Endpoint[Any],
    strict: EmbeddedServer,
    capsys: Capture,
) -> None:
    file = prepare(World(endpoint, strict))
    capsys.readouterr()

    code = main([*mistake.arguments, "--config", str(file)])

    _assert_told(mistake, code, capsys.readouterr().err)


@pytest.mark.usefixtures("spark")
def test_mistake_in_the_session_is_told(endpoint: Endpoint[Any], capsys: Capture) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    file = endpoint.config_file(ledger__root="ledger")

    code = main([*ON_SPARK.arguments, "--config", str(file)])

    _assert_told(ON_SPARK, code, capsys.readouterr().err)


def test_mistake_at_java_is_told(endpoint: Endpoint[Any]) -> None:
    file = endpoint.config_file()

    done = spark_submit.run(*BY_SHELL.arguments, "--config", str(file), **BY_SHELL.variables)

    assert (done.returncode, len(done.stderr.splitlines())) == (BY_SHELL.code, 1)
    for words in (BY_SHELL.what, BY_SHELL.where, BY_SHELL.do):
        assert words in done.stderr


def test_port_of_watch_in_use_is_told(endpoint: Endpoint[Any], capsys: Capture) -> None:
    endpoint.set_up()
    mistake = Mistake(42, [], "is in use", "Port", "--port")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        code = main(["watch", "--port", port, "--config", str(endpoint.config_file())])

    _assert_told(mistake, code, capsys.readouterr().err)


@pytest.mark.parametrize("name", ["postgresql", "sqlserver", "msmq", "sql-persistence", "rabbitmq"])
def test_example_that_is_used_as_it_is_asks_for_the_dsn(name: str, capsys: Capture) -> None:
    file = Path(__file__).parents[2] / "conf" / f"{name}.toml"
    mistake = Mistake(11, [], "store.dsn is not set", f"{name}.toml:", "DUESWEEP_STORE__DSN")

    code = main(["sweep", "--config", str(file)])

    _assert_told(mistake, code, capsys.readouterr().err)


def test_several_problems_are_a_line_each_and_one_string_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("duesweep.toml").write_text(WHOLE + "[sweep]\nslices = -1\n[retry]\nmax_atempts = 1\n")

    assert main(["sweep", "--json"]) == 2

    told = capsys.readouterr()
    unknown, wrong = told.err.splitlines()
    assert unknown.startswith("duesweep: duesweep.toml:9: There is no setting retry.max_atempts")
    assert wrong.startswith("duesweep: duesweep.toml:7: sweep.slices is wrong: it is -1")
    assert isinstance(json.loads(told.out)["error"], str)


def test_every_row_of_the_table_is_here() -> None:
    rows = {mistake.row for mistake in SETTINGS} | {mistake.row for mistake, _ in AT_SERVICES}

    rows |= {ON_SPARK.row, BY_SHELL.row}
    assert rows | {11, 42} | ROWS_ELSEWHERE == set(range(1, 47))
