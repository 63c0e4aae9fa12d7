"""Common mistakes: the exit code, what happened, where, and what to do.

Row 46, another Unix user, is in test_checkout.py.
"""

import shlex
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from duesweep.operations.demo.server import EmbeddedServer
from support.commands import WITHOUT_JAVA, Ran, run, run_on_shell
from support.endpoint import Endpoint
from support.logins import create_role, password_server

STORE = '[store]\nendpoint = "Sales"\ndsn = "postgresql://sweeper@127.0.0.1:1/nsb"\n'
LEDGER = '[ledger]\nroot = "/ledger"\n'
WHOLE = STORE + LEDGER
ODBC = 'store.endpoint = "S"\nstore.dsn = "Server=h;Database=d"\nledger.root = "/l"\n'
FLEET = LEDGER.replace("[", "[defaults.") + "".join(
    f'[[endpoint]]\nstore.endpoint = "{name}"\n' for name in ("Billing", "Sales")
)
ROWS_ELSEWHERE = {46}


@dataclass(frozen=True)
class World:
    """The parts of a mistake at a service."""

    endpoint: Endpoint[Any]
    strict: EmbeddedServer

    def set_up(self, *queues: str, **settings: object) -> Endpoint[Any]:
        return self.endpoint.set_up(*queues).having(**settings)

    def with_dsn(self, dsn: str) -> Endpoint[Any]:
        return self.endpoint.having(store__dsn=dsn)

    def connecting(self, **parameters: str) -> Endpoint[Any]:
        return self.with_dsn(make_conninfo(self.endpoint.dsn, **parameters))

    def with_password(self, password: str) -> Endpoint[Any]:
        login = f"sweeper{password}@127.0.0.1:{self.strict.port}"
        return self.with_dsn(f"postgresql://{login}/postgres")

    def with_rights(self, *rights: str) -> Endpoint[Any]:
        self.endpoint.set_up("Billing")
        return self.with_dsn(str(self.endpoint.server.role("sweeper", *rights)))

    def with_message(self, **settings: object) -> Endpoint[Any]:
        self.endpoint.set_up("Billing").delay("Billing")
        return self.endpoint.having(**settings)


@dataclass(frozen=True)
class Mistake:
    """A row of the table. Texts in the error: `what` happened, `where`, what to `do`; `without`:
    texts that must not be in it. It is made by the file duesweep.toml, by variables, or `at` a
    service.
    """

    row: int
    command: str
    what: str
    where: str
    do: str
    toml: str | None = WHOLE
    variables: Mapping[str, str] = field(default_factory=dict)
    code: int = 2
    without: str | None = None
    at: Callable[[World], Endpoint[Any]] | None = None

    def __str__(self) -> str:
        return f"{self.row}-{self.what[:30]}"

    def assert_told(self, ran: Ran, **names: object) -> None:
        first, *others = ran.err.rstrip("\n").split("\n")
        assert ran.code == self.code, ran
        for words in (self.what, self.where, self.do):
            assert words.format(**names) in first, ran
        assert "Traceback" not in ran.err
        assert "correct it" not in ran.err.lower()
        assert all(line.startswith("duesweep: ") for line in (first, *others)), ran
        assert self.without is None or self.without.lower() not in ran.err.lower(), ran


def _ledger_moved(world: World) -> Endpoint[Any]:
    endpoint = world.with_message()
    assert endpoint.run("sweep").code == 0
    endpoint.delay("Billing")
    return endpoint.having(ledger__root=str(endpoint.folder / "other"))


def _waiting(world: World) -> Endpoint[Any]:
    endpoint = world.set_up("Billing")
    endpoint.delay("Billing", due_in_seconds=3600)
    return endpoint


DELAYED, BILLING = '"public"."Sales.Orders.Delayed"', '"public"."Billing"'
NO_TABLE = "permission denied for table "
# The numbers are from the table in the issue of these mistakes.
MISTAKES = [
    Mistake(1, "sweep", "no setting store.endpont", "duesweep.toml:2:",
            "Did you mean store.endpoint?",
            WHOLE.replace("endpoint", "endpont"), without="not set"),
    Mistake(2, "sweep", "no section [stroe]", "duesweep.toml:1:", "Did you mean [store]?",
            WHOLE.replace("[store]", "[stroe]"), without="not set"),
    Mistake(3, "sweep", "is set in the environment", "DUESWEEP_STORE_DSN", "DUESWEEP_STORE__DSN?",
            variables={"DUESWEEP_STORE_DSN": "x"}),
    Mistake(4, "sweep", "no setting store.dns", "DUESWEEP_STORE__DNS in the environment",
            "Did you mean store.dsn?", variables={"DUESWEEP_STORE__DNS": "x"}),
    Mistake(5, "sweep", "rejected the login: FATAL: password authentication failed", "127.0.0.1",
            "Correct user or password in the dsn", without="connection failed:",
            at=lambda w: w.with_password(":wrong")),
    Mistake(6, "sweep", 'role "absent" does not exist', "rejected the login", "Correct the user",
            without="pg_hba", at=lambda w: w.connecting(user="absent")),
    Mistake(7, "sweep", 'database "absent" does not exist', "/absent", "Correct the database",
            without="pg_hba", at=lambda w: w.connecting(dbname="absent")),
    Mistake(8, "sweep", "asks for a password", "127.0.0.1", "DUESWEEP_STORE__DSN",
            without="check that it runs", at=lambda w: w.with_password("")),
    Mistake(9, "sweep", "refused", "127.0.0.1:1/", "Check that it runs", code=4, without="?",
            at=lambda w: w.with_dsn("postgresql://postgres@127.0.0.1:1/postgres")),
    Mistake(10, "sweep", "resolve host", "nowhere.invalid", "Check the host's name", code=4,
            without="check that it runs",
            at=lambda w: w.with_dsn("postgresql://postgres@nowhere.invalid/postgres")),
    Mistake(12, "sweep", "cannot be read", "dsn", "percent-encoded",
            WHOLE.replace("sweeper@", "sweeper:s3@cret@"), without="cret@"),
    Mistake(13, "sweep", "store.dsn is not set", "duesweep.toml:1:", "DUESWEEP_STORE__DSN",
            '[store]\nendpoint = "Sales"\n' + LEDGER),
    Mistake(14, "sweep", "There is no duesweep.toml in ", "{folder}", "--config", None),
    Mistake(15, "sweep --config absent.toml", "no configuration file", "absent.toml", "--config"),
    Mistake(16, "sweep", "'postgres'", "duesweep.toml:2:", "Did you mean postgresql?",
            WHOLE.replace("[store]", '[store]\nkind = "postgres"')),
    Mistake(17, "sweep", "contradict each other", "duesweep.toml:2:", "Correct the wrong one",
            WHOLE.replace("[store]", '[store]\nkind = "sqlserver"')),
    Mistake(17, "sweep", "dsn is one of SQL Server", "duesweep.toml:4:", "Correct the wrong one",
            ODBC + 'store.kind = "postgresql"\n'),
    Mistake(18, "sweep", 'no delayed table "public"."Sales.Order.Delayed"', "store.endpoint",
            f"Did you mean {DELAYED}?", at=lambda w: w.set_up().named("Sales.Order")),
    Mistake(19, "sweep", 'no delayed table "sales"', "store.schema", f"Did you mean {DELAYED}?",
            at=lambda w: w.set_up(store__schema="sales")),
    Mistake(20, "sweep", 'no queue table "public"."failed"', "retry.error_queue",
            "Run the command `setup`",
            at=lambda w: w.set_up(retry__error_queue="failed")),
    Mistake(21, "sweep", "lacks UPDATE", 'Sales.Orders.Delayed"', "doctor",
            at=lambda w: w.with_rights(f"SELECT, DELETE ON {DELAYED}")),
    Mistake(22, "setup", "may not create tables", 'in schema "public". Grant it USAGE and CREATE',
            "setup --print-sql",
            at=lambda w: w.with_dsn(str(w.endpoint.server.role("sweeper")))),
    Mistake(23, "queue send Billing --body x", f"{NO_TABLE}Billing", "42501",
            f'Run GRANT INSERT ON {BILLING} TO "test_',
            at=lambda w: w.with_rights(f"SELECT ON {BILLING}")),
    Mistake(23, "queue send Billing --body x --delay 2s", f"{NO_TABLE}Sales.Orders.Delayed",
            "42501", f'GRANT INSERT ON {DELAYED} TO "test_',
            at=lambda w: w.with_rights(f"SELECT ON {DELAYED}")),
    Mistake(23, "queue receive Billing", f"{NO_TABLE}Billing", "42501",
            f"GRANT SELECT, UPDATE, DELETE ON {BILLING}",
            at=lambda w: w.with_rights(f"SELECT ON {BILLING}")),
    Mistake(23, "queue purge Billing --yes", f"{NO_TABLE}Billing", "42501", f"DELETE ON {BILLING}",
            at=lambda w: w.with_rights(f"SELECT ON {BILLING}")),
    Mistake(24, "sweep", "cannot be written", "/proc/ledger", "Check ledger.root",
            at=lambda w: w.with_message(ledger__root="/proc/ledger")),
    Mistake(25, "sweep", "belongs to ledger", "/other", "setup --rebind", at=_ledger_moved),
    Mistake(28, "sweep", "two spellings of one setting",
            "DUESWEEP_STORE__DSN and duesweep_store__dsn", "Keep DUESWEEP_STORE__DSN",
            variables={"DUESWEEP_STORE__DSN": "x", "duesweep_store__dsn": "y"}),
    Mistake(29, "sweep", "no section [queue.default]", "duesweep.toml:6:",
            "Did you mean [queues.default]?", WHOLE + '[queue.default]\ndsn = "x"\n'),
    Mistake(29, "sweep", "no section [queue]", "duesweep.toml:6:",
            "Did you mean [queues.default]?", WHOLE + '[queue]\ndsn = "x"\n'),
    Mistake(30, "sweep", "no setting routes", "duesweep.toml:6:", "Did you mean route?",
            WHOLE + '[[routes]]\ndestination = "*"\n'),
    Mistake(31, "sweep", "[store] is there twice", "duesweep.toml is not valid TOML",
            "under one [store]", WHOLE + "[store]\n"),
    Mistake(32, "sweep", "Expected '=' after a key", "line 2", "key = value",
            "[store]\nendpoint\n"),
    Mistake(33, "sweep", "it is 0, and must be at least 1", "duesweep.toml:7:",
            "retry.max_attempts",
            WHOLE + "[retry]\nmax_attempts = 0\n"),
    Mistake(34, "sweep", "it is five, and must be a whole number",
            "DUESWEEP_RETRY__MAX_ATTEMPTS in the environment", "retry.max_attempts",
            variables={"DUESWEEP_RETRY__MAX_ATTEMPTS": "five"}),
    Mistake(35, "sweep --set store.dsn=postgresql://u:s3cret@h/d", "password", "--set",
            "DUESWEEP_STORE__DSN", without="s3cret"),
    Mistake(36, "swep", "No such command", "swep", "sweep"),
    Mistake(37, "sweep --dry-run", "No such option", "--dry-run", "duesweep plan"),
    Mistake(38, "list --due-before tomorrow", "is not a time", "'tomorrow'", "2026-12-01"),
    Mistake(39, "list --limit 0", "Invalid value", "--limit", "greater than or equal to 1"),
    Mistake(40, "doctor --ignore tables", "There is no check", "tables",
            "Did you mean table-shape?"),
    Mistake(41, "sweep", "only RabbitMQ can hold messages", "duesweep.toml:7:",
            "Remove the setting",
            WHOLE + "[sweep]\nlook_ahead_seconds = 60\n"),
    Mistake(43, "handover", "nothing can be handed over", "[queues]", "of kind rabbitmq"),
    Mistake(44, "cancel --destination Biling --reason x --yes",
            "o waiting message is for the destination", "'Biling'", "Did you mean 'Billing'?",
            at=_waiting),
    Mistake(45, "setup --config fleet.toml", "settings of 2 endpoints", "fleet.toml",
            "--endpoint Billing"),
]  # fmt: skip
SETTINGS = [mistake for mistake in MISTAKES if mistake.at is None]
AT_SERVICES = [mistake for mistake in MISTAKES if mistake.at is not None]
EXAMPLE = Mistake(11, "sweep", "store.dsn is not set", "{name}.toml:", "DUESWEEP_STORE__DSN")
ON_SPARK = Mistake(
    26, "sweep", "there is no such catalog schema", "ledger.root is 'ledger'", "./ledger"
)
# By the command of a checkout.
BY_SHELL = Mistake(
    27,
    "doctor --set sweep.engine=spark",
    "Spark needs Java 17 or 21",
    "/nonexistent/bin/java",
    "install",
)
PORT = Mistake(42, "watch --port {port}", "is in use", "Port", "--port")


@pytest.mark.parametrize("mistake", SETTINGS, ids=str)
def test_mistake_in_settings_or_options_is_told(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in mistake.variables.items():
        monkeypatch.setenv(name, value)
    if mistake.toml is not None:
        Path("duesweep.toml").write_text(mistake.toml)
    Path("fleet.toml").write_text(FLEET)

    mistake.assert_told(run(*shlex.split(mistake.command)), folder=tmp_path)


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="duesweep-tests-") as folder:
        # Not in pytest's own folder: another run of pytest closes it to the server's user.
        Path(folder).chmod(0o755)
        with password_server(Path(folder)) as server:
            create_role(server.dsn, "sweeper", "right")
            yield server


@pytest.mark.parametrize("mistake", AT_SERVICES, ids=str)
def test_mistake_at_a_service_is_told(
    mistake: Mistake, endpoint: Endpoint[Any], strict: EmbeddedServer
) -> None:
    assert mistake.at is not None
    at = mistake.at(World(endpoint, strict))

    mistake.assert_told(at.run(*shlex.split(mistake.command)))


@pytest.mark.usefixtures("spark")
def test_mistake_in_the_session_is_told(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up("Billing").delay("Billing")

    ON_SPARK.assert_told(endpoint.run("sweep", ledger__root="ledger"))


def test_mistake_at_java_is_told(endpoint: Endpoint[Any]) -> None:
    file = str(endpoint.config_file())

    done = run_on_shell(*shlex.split(BY_SHELL.command), "--config", file, **WITHOUT_JAVA)

    assert (done.code, len(done.err.splitlines())) == (BY_SHELL.code, 1)
    for words in (BY_SHELL.what, BY_SHELL.where, BY_SHELL.do):
        assert words in done.err


def test_doctor_without_java_reports_all_that_needs_none(endpoint: Endpoint[Any]) -> None:
    file = str(endpoint.set_up("Billing").config_file())

    done = run_on_shell("doctor", "--json", "--config", file, **WITHOUT_JAVA)

    findings = {each["check"]: each["severity"] for each in done.document["findings"]}
    # Large sweeps run in process.
    assert (done.code, done.document["worst"]) == (3, "warning")
    assert {check for check, severity in findings.items() if severity == "warning"} == {
        "spark-start"
    }
    assert {"server-reachable", "table-rights", "sweep-start", "ledger"} <= findings.keys()
    assert "executor-drivers" not in findings
    ignored = run_on_shell("doctor", "--config", file, "--ignore", "spark-start", **WITHOUT_JAVA)
    assert ignored.code == 0


def test_port_of_watch_in_use_is_told(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        PORT.assert_told(endpoint.run("watch", "--port", str(taken.getsockname()[1])))


@pytest.mark.parametrize("name", ["postgresql", "sqlserver", "msmq", "sql-persistence", "rabbitmq"])
def test_example_that_is_used_as_it_is_asks_for_the_dsn(name: str) -> None:
    file = Path(__file__).parents[2] / "conf" / f"{name}.toml"

    EXAMPLE.assert_told(run("sweep", "--config", str(file)), name=name)


def test_several_problems_are_a_line_each_and_one_string_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("duesweep.toml").write_text(WHOLE + "[sweep]\nslices = -1\n[retry]\nmax_atempts = 1\n")

    ran = run("sweep", "--json")

    unknown, wrong = ran.err.splitlines()
    assert unknown.startswith("duesweep: duesweep.toml:9: There is no setting retry.max_atempts")
    assert wrong.startswith("duesweep: duesweep.toml:7: sweep.slices is wrong: it is -1")
    assert (ran.code, type(ran.document["error"])) == (2, str)


def test_every_row_of_the_table_is_here() -> None:
    rows = {mistake.row for mistake in [*MISTAKES, EXAMPLE, ON_SPARK, BY_SHELL, PORT]}

    assert rows | ROWS_ELSEWHERE == set(range(1, 47))
