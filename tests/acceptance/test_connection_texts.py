"""Connection strings of .NET are used or refused; a password in them is shown nowhere."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.commands import run
from support.endpoint import Endpoint
from support.rabbitmq.broker import Broker

MARK = "n33dle"
LONG = "a" * 64
# No server answers there.
HOST, PORT = "127.0.0.1", "1"
# Its dsn may have any form, so only its connections check it.
_CUSTOM = "support.acme_stores:AcmeStore"
COMMANDS = (
    *(["sweep", "--json"], ["sweep"], ["doctor", "--json", "--no-spark"], ["list"]),
    *(["plan"], ["setup"], ["setup", "--print-sql"], ["queue", "peek", "Billing"]),
    *(["report", "--out", "report.html"], ["config"], ["errors", "list"], ["audit"]),
)


@contextmanager
def _folder(store: Mapping[str, str], queue: Mapping[str, str]) -> Iterator[Path]:
    """A folder with a configuration; each test of a property needs one of its own."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        lines = ["[ledger]", "root = './ledger'", "[store]", "endpoint = 'Sales'"]
        lines += [f"{name} = {_toml(text)}" for name, text in store.items()]
        lines += ["[queues.default]"] if queue else []
        lines += [f"{name} = {_toml(text)}" for name, text in queue.items()]
        Path("duesweep.toml").write_text("\n".join(lines), "utf-8")
        yield Path(folder)


def _toml(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _leaks(folder: Path, commands: tuple[list[str], ...] = COMMANDS) -> list[str]:
    """The commands that show the mark, or that end in a traceback."""
    found = []
    for command in commands:
        try:
            done = run(*command)
        except Exception as error:  # noqa: BLE001 - the fault that is looked for
            found.append(f"{command}: {type(error).__name__}: {error}")
            continue
        if MARK in done.told or "Traceback" in done.told:
            found.append(f"{command}: {done.told}")
    files = (path for path in folder.rglob("*") if path.is_file())
    found += [
        str(p) for p in files if p.name != "duesweep.toml" and MARK.encode() in p.read_bytes()
    ]
    return found


# Without control characters, which a file of settings cannot hold.
_SIGNS = st.text(st.sampled_from(";:/@?#%[]{}'\"=& ,\\ax1"), max_size=4)
_PASSWORDS = st.builds(lambda before, after: before + MARK + after, _SIGNS, _SIGNS)
_PARTS = {
    **dict.fromkeys(("host", "Host", "Server", "server", "Data Source", "HOST", "addr"), HOST),
    **dict.fromkeys(("port", "Port"), PORT),
    **dict.fromkeys(("database", "dbname", "Initial Catalog", "DB", "virtualHost"), "nsb"),
    **dict.fromkeys(("username", "user", "User ID", "Uid", "userName"), "app"),
    **dict.fromkeys(("password", "Password", "Pwd", "PSW", "certPassphrase"), ""),
    **{"Driver": "x", "Pooling": "true", "useTls": "false", "sslmode": "disable", "Encrypt": "no"},
}


@st.composite
def _pairs(draw: st.DrawFn) -> str:
    """Pairs of one grammar or a mixture of several, with the mark in a password."""
    names = draw(st.lists(st.sampled_from(sorted(_PARTS)), max_size=5))
    names.append(draw(st.sampled_from(["password", "Password", "pwd", "PSW"])))
    quotes = draw(st.sampled_from(["{}", "{}", '"{}"', "'{}'", "{{{}}}"]))
    separator = draw(st.sampled_from([";", "; ", " ", "&", ","]))
    values = {**_PARTS, **dict.fromkeys(names[-1:], quotes.format(draw(_PASSWORDS)))}
    return separator.join(f"{name}={values[name]}" for name in draw(st.permutations(names)))


@st.composite
def _urls(draw: st.DrawFn) -> str:
    scheme = draw(
        st.sampled_from(["postgresql", "jdbc:postgresql", "jdbc:sqlserver", "amqp", "http"])
    )
    password = draw(_PASSWORDS)
    login = draw(st.sampled_from(["", f"app:{password}@", f"app:{quote(password, safe='')}@"]))
    more = draw(st.sampled_from(["", ";", "/nsb;", "/nsb?", "?", "/nsb&", "/nsb ", ","]))
    return f"{scheme}://{login}{HOST}:{PORT}{more}{draw(_pairs()) if more else '/nsb'}"


_TEXTS = st.one_of(_pairs(), _urls(), st.builds("{} {}".format, _urls(), _pairs()))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=_TEXTS, kind=st.sampled_from([None, "postgresql", "sqlserver", _CUSTOM]))
@example(f"host={HOST};port=1;username=app;password={MARK};database=nsb", None)
@example(f"host={HOST} port=1 user=app;password={MARK} dbname=nsb", "postgresql")
@example(f"postgresql://{HOST};password={MARK}/nsb", None)
@example(f"host={HOST} port=1 user=app;password={MARK} dbname=nsb", _CUSTOM)
def test_password_in_a_dsn_of_any_grammar_is_shown_nowhere(text: str, kind: str | None) -> None:
    store = {"dsn": text} | ({"kind": kind} if kind else {})
    # A custom store is not in front of queues of its own.
    with _folder(store, {"kind": "postgresql"} if kind == _CUSTOM else {}) as folder:
        assert _leaks(folder) == []


@settings(max_examples=40, deadline=None)
@given(text=_TEXTS, setting=st.sampled_from(["dsn", "url", "management_url"]))
@example(f"host=broker1..;username=app;password={MARK}", "url")
@example(f"amqp://{HOST};username=app;password={MARK}", "url")
def test_password_in_a_queues_text_of_any_grammar_is_shown_nowhere(text: str, setting: str) -> None:
    queue = {"kind": "postgresql", "dsn": text}
    if setting != "dsn":
        queue = {"kind": "rabbitmq", "url": f"amqp://u:p@{HOST}:1/"} | {setting: text}
    with _folder({"dsn": f"postgresql://u@{HOST}:1/nsb"}, queue) as folder:
        more = (["rabbitmq", "delays", "verify"], ["queue", "create", "Billing"])
        assert _leaks(folder, (*COMMANDS, *more)) == []


CASES = {
    f"host=db1 user=postgres;password={MARK} dbname=nsb": "store.dsn is wrong: its host holds",
    f"host=db1 dbname=nsb;password={MARK}": "store.dsn is wrong: its host holds ; or =",
    f"postgresql://db1;password={MARK}/nsb": "store.dsn is wrong: its host holds ; or =",
    f"postgresql://u:{MARK}@db..example/nsb": "store.dsn is wrong: its host has an empty part",
    f"postgresql://u:{MARK}@{LONG}/nsb": "store.dsn is wrong: its host is longer than",
    f"jdbc:postgresql://db1/nsb?user=app&password={MARK}": "store.dsn is wrong: it is neither",
    f"Data Source=db1;Initial Catalog=nsb;User ID=app;Password={MARK}": "store.kind is postgresql",
    f"Server=db1;Database=nsb;User Id=app;Password={MARK}": "store.kind is postgresql, but its dsn",
    f"Host=db1;Username=app;Password={MARK};Timezone=UTC": "its option Timezone cannot be used",
}


@pytest.mark.parametrize("command", COMMANDS[:-2], ids=" ".join)
@pytest.mark.parametrize(("dsn", "told"), CASES.items())
def test_dsn_that_cannot_be_used_is_refused_by_its_setting(
    command: list[str], dsn: str, told: str
) -> None:
    with _folder({"dsn": dsn}, {}):
        done = run(*command)

    assert done.code == 2
    assert told in done.told
    assert MARK not in done.told


OTHERS = {
    "store.jdbc_url": f"jdbc:sqlserver://db1,password={MARK}",
    "metrics.pushgateway": f"http://h/;password={MARK}",
    "ledger.root": f"s3a://key:{MARK}@bucket/ledger",
    "retry.error_queue": f"amqp://app:{MARK}@mq1/error",
    "store.endpoint": f"host=db1;password={MARK}",
    "store.kind": f"postgresql://app:{MARK}@db1/nsb",
    "sweep.batch_rows": f"postgresql://app:{MARK}@db1/nsb",
    "ledger.writer": f"host=db1;pwd={MARK}",
}


@pytest.mark.parametrize(("setting", "value"), OTHERS.items())
def test_password_in_another_setting_is_refused_by_the_settings_name(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str
) -> None:
    monkeypatch.setenv(f"DUESWEEP_{setting.upper().replace('.', '__')}", value)
    store = {"dsn": f"postgresql://u@{HOST}:1/nsb"}
    if setting == "store.jdbc_url":
        store = {"kind": "sqlserver", "dsn": "Server=db1;Database=nsb"}
    with _folder(store, {}):
        for command in COMMANDS[:-2]:
            done = run(*command)

            assert done.code == 2
            assert f"{setting} is" in done.told
            assert MARK not in done.told


def test_npgsqls_connection_string_leads_to_the_store(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    server = urlsplit(endpoint.dsn)
    text = f"Username={server.username};Database={server.path[1:]};Port={server.port};"
    monkeypatch.setenv("DUESWEEP_STORE__DSN", f"{text}Host={server.hostname};Pooling=true")

    done = run("sweep", "--json", "--config", str(endpoint.config_file()))

    assert (done.code, done.document["dispatched"]) == (0, 1)


@pytest.mark.xdist_group("rabbitmq")
def test_connection_string_of_nservicebus_leads_to_the_broker(
    endpoint: Endpoint, broker: Broker
) -> None:
    endpoint.set_up().delay("Billing")
    broker.create("Billing")
    broker.create(endpoint.name)
    url = urlsplit(broker.url)
    text = f"virtualHost={broker.vhost};username={url.username};password={url.password};"
    file = endpoint.config_file(
        queues__default__kind="rabbitmq",
        queues__default__url=f"{text}host={url.hostname}:{url.port};RetryDelay=00:00:10",
    )

    done = run("sweep", "--json", "--config", str(file))

    assert done.code == 0, done.told
    assert (done.document["dispatched"], broker.count("Billing")) == (1, 1)
