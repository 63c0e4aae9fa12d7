"""Configuration: which settings are refused, and with which text."""

import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from pydantic import ValidationError

from duesweep.config import Config, load, wording
from duesweep.core.errors import ConfigError
from support.config_files import MINIMAL, SQL_SERVER, file_of, refusal_of

URL = "amqps://sweeper:s3cret@mq.example:5671/sales"
BROKER = '[queues.main]\nkind = "rabbitmq"\nurl = "amqp://broker"\n'
DEFAULT = '[queues.default]\nkind = "rabbitmq"\n'
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n'
ROUTED = f'{SQL_SERVER}[queues.main]\nkind = "sqlserver"\n{ROUTE}'
FRACTION = "sweep.slices is wrong: it must be a whole number, without a decimal point"
LIST = "route is wrong: it is a list of sections, each with the header [[route]]"


@dataclass(frozen=True)
class Wrong:
    """A configuration: a file of `base` and `more`, settings `given` on the command line, and
    variables. Its refusal `says` this, or this alone if it is `exact`.
    """

    says: str
    more: str = ""
    given: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    base: str = MINIMAL
    exact: bool = False

    def __str__(self) -> str:
        return self.says


def _on_rabbitmq(says: str, *settings: str, more: str = DEFAULT) -> Wrong:
    return Wrong(says, more, [f"queues.default.{setting}" for setting in settings])


def _without(line: str, path: str, toml: str) -> Wrong:
    """A value is missing: it is named with all ways to give it."""
    variable = f"DUESWEEP_{path.upper().replace('.', '__')}"
    says = f"{path} is not set; write {toml}, or set {variable} in the environment"
    return Wrong(says, base=MINIMAL.replace(line, ""), exact=True)


UNKNOWN = [
    Wrong("sweep.batch_row; did you mean sweep.batch_rows?", "[sweep]\nbatch_row = 1"),
    Wrong("queues.default.dns; did you mean queues.default.dsn?", '[queues.default]\ndns = ""'),
    Wrong("store.db_schema; did you mean store.schema?",
          base=MINIMAL.replace("endpoint", "db_schema")),
    Wrong("There is no section [zzzzz]", "[zzzzz]\nx = 1"),
    Wrong("sweep.slice; did you mean sweep.slices?", given=["sweep.slice=1"]),
    Wrong("queues.main.urll; did you mean queues.main.url?", f"{BROKER}urll = 'x'\n"),
    Wrong("destinaton in [[route]] 2; did you mean route.destination?",
          f"{BROKER}{ROUTE}[[route]]\ndestinaton = 'x'\nconnection = 'main'"),
    Wrong("did you mean route.queue?", f'{ROUTE}qeue = "x"\n', base=ROUTED),
    Wrong("store.endpiont; did you mean store.endpoint?", env={"DUESWEEP_STORE__ENDPIONT": "x"}),
]  # fmt: skip
# A section that is not known, or an underscore that is missing: the variable is named.
VARIABLES = {
    "DUESWEEP_RETRYY__ERROR_QUEUE": "retryy.error_queue; did you mean retry.error_queue?",
    "duesweep_stroe__dsn": "stroe.dsn; did you mean store.dsn?",
    "DUESWEEP_QUEUE__DEFAULT__DSN": "did you mean queues.default.dsn?",
    "DUESWEEP__STORE__DSN": "_store.dsn; did you mean store.dsn?",
    **{f"DUESWEEP_{short}": f"{short} is set in the environment; did you mean DUESWEEP_{whole}?"
       for short, whole in {
           "LEDGER_ROOT": "LEDGER__ROOT",
           "STORE_SCHEMA": "STORE__SCHEMA",
           "QUEUES_DEFAULT_DSN": "QUEUES__DEFAULT__DSN",
           "QUEUES__DEFAULT_DSN": "QUEUES__DEFAULT__DSN",
       }.items()},
}  # fmt: skip
SHAPES = [
    Wrong("store is wrong: it is a section, and a value was given", given=["store=x"]),
    Wrong("queues is wrong: it is a section, and a value was given", given=["queues=x"]),
    Wrong("queues.default is wrong: it is a section", given=["queues.default=x"]),
    Wrong(LIST, given=["route=x"]),
    Wrong("queues is wrong: it must be one section for each connection", "[[queues]]\nurl = 'x'"),
    Wrong("store.dsn is wrong: input should be a valid string", given=["store.dsn.x=1"]),
    Wrong("--set store.dsn: another --set gives store a value, so it is no section",
          given=["store=x", "store.dsn=y"]),
    Wrong("sweep.slices.x: another --set gives slices a value",
          given=["sweep.slices=1", "sweep.slices.x=1"]),
    *(Wrong("is not of the form section.key=value", given=[given])
      for given in ("slices", "", "store.endpoint")),
]  # fmt: skip
MISSING = [
    _without('[ledger]\nroot = "/ledger"', "ledger.root", "root = … under [ledger]"),
    _without('root = "/ledger"', "ledger.root", "root = … under [ledger]"),
    _without('endpoint = "Sales.Orders"', "store.endpoint", "endpoint = … under [store]"),
    _without('dsn = "postgresql://sweeper:s3cret@db.example:5432/sales"',
             "store.dsn", "dsn = … under [store]"),
    Wrong("destination of [[route]] 1 is not set; give it in the configuration file, as "
          "destination = … under it", f"{BROKER}[[route]]\nconnection = 'main'", exact=True),
    Wrong("DUESWEEP_QUEUES__MAIN__URL",
          f'[queues.Main]\nkind = "rabbitmq"\n{ROUTE.replace("main", "Main")}'),
    Wrong("as DUESWEEP_LEDGER__ROOT", base=MINIMAL.partition("[ledger]")[0],
          env={"DUESWEEP_LEDGER": "/var/lib/ledger"}),
    _on_rabbitmq("queues.default.url is not set; give it, as in amqps://user@host:5671/vhost"),
]  # fmt: skip
VALUES = [
    Wrong(FRACTION, "[sweep]\nslices = 5.0\n", exact=True),
    Wrong(FRACTION, "[sweep]\nslices = 1e3\n", exact=True),
    Wrong(FRACTION, given=["sweep.slices=5.5"], exact=True),
    Wrong("store.name is wrong: it is a number, and must be text: write it in quotes", exact=True,
          base=MINIMAL.replace("[store]", "[store]\nname = 7")),
    Wrong("retry.max_attempts is wrong: it is true, and must be a whole number",
          env={"DUESWEEP_RETRY__MAX_ATTEMPTS": "true"}),
    Wrong("queues.default.readable_body is wrong: it is perhaps, and must be true or false",
          given=["queues.default.readable_body=perhaps"], exact=True),
    Wrong("queues.default.readable_body is wrong: it is 1, and must be true or false",
          "[queues.default]\nreadable_body = 1", exact=True),
    *(Wrong(f'sweep.allow_destinations is wrong: it is a list, as ["one", "two"]{more}',
            given=[f"sweep.allow_destinations={text}"], exact=True)
      for text, more in (("x", ""), ("[x", ", and cannot be read"))),
    *(Wrong(f"{setting} is wrong: it is a list", base=f"{setting} = '[]'\n{MINIMAL}")
      for setting in ("route", "sweep.allow_destinations")),
    Wrong("retry.max_seconds is 10, less than retry.initial_seconds, 30 by default; set "
          "retry.initial_seconds to at most 10, or retry.max_seconds to at least 30",
          given=["retry.max_seconds=10"], exact=True),
    Wrong("retry.max_seconds is 7, less than retry.initial_seconds, 20.5; ",
          "[retry]\ninitial_seconds = 20.5\nmax_seconds = 7"),
    *(Wrong("queues has a section with an empty name; name it, as [queues.default]",
            f'[queues."{name}"]\ndsn = "postgresql://h/d"\n', exact=True)
      for name in ("", " ", "\\t")),
    Wrong("queues.Main and queues.main differ only by case, and environment variables are not "
          "case-sensitive; rename one of them",
          "[queues.main]\nschema = 'a'\n[queues.Main]\nschema = 'b'\n", exact=True),
    *(Wrong("store.kind is wrong", given=[f"store.kind={kind}"])
      for kind in ("oracle", "a.b", "a.b:", ":C", "a b:C", "a:b:c")),
    *(Wrong(f"{setting} is wrong: it is a dsn, and must be", given=[f"{setting}={dsn}"])
      for setting in ("store.kind", "queues.default.kind")
      for dsn in ("postgresql://a:s3cret@db/sales", "Server=db;Pwd=s3cret")),
]  # fmt: skip
# Settings that a kind of store or of queues does not have.
MEANINGLESS = [
    Wrong("store.jdbc_url has no effect", given=["store.jdbc_url=jdbc:x"]),
    Wrong("store.options has no effect", '[store.options]\nfolder = "/data"\n'),
    Wrong("sweep.look_ahead_seconds is set", given=["sweep.look_ahead_seconds=60"]),
    *(Wrong(says, given=given, base=SQL_SERVER) for says, given in (
        ("store.writer_time_zone has no effect on a store of kind", ["store.writer_time_zone=UTC"]),
        ("store.number_of_retries has no effect", ["store.number_of_retries=1"]),
        ("set store.number_of_retries", ["store.kind=msmq", "retry.max_attempts=5"]),
        ("set it to at most 1000", ["sweep.batch_rows=1001"]),
        ("sweep.batch_rows is 10000", ["store.kind=msmq", "sweep.batch_rows=10000"]),
        ("queues.main is not used; rename it to queues.default", ["queues.main.kind=sqlserver"]),
        ("queues.default.kind is wrong", ["queues.default.kind=oracle"]),
        ("store.transaction_mode is wrong", ["store.transaction_mode=always"]),
    )),
    _on_rabbitmq("queues.default.url is wrong: it is empty", "url="),
    _on_rabbitmq("queues.default.url is wrong: input should be a valid", "url.x=1"),
    _on_rabbitmq("queues.default.dsn has no effect on RabbitMQ", "dsn=x"),
    _on_rabbitmq("queues.default.schema has no effect on RabbitMQ", "schema=x"),
    _on_rabbitmq("queues.default.readable_body has no effect on RabbitMQ", "readable_body=true"),
    _on_rabbitmq("queues.default.topology is wrong", "topology=fanout"),
    _on_rabbitmq("queues.default.max_in_flight is wrong", "max_in_flight=0"),
    _on_rabbitmq("client_key is set without client_certificate",
                 f"url={URL}", "client_key=key.pem"),
    _on_rabbitmq("ca_file is set, but has no effect on a url that does not begin with amqps:",
                 "url=amqp://u:s3cret@host/v", "ca_file=ca.pem"),
    _on_rabbitmq("queues.default.ca_file is set",
                 more=f'{DEFAULT}url = ["{URL}", "amqp://u:s3cret@host/v"]\nca_file = "ca.pem"\n'),
    _on_rabbitmq('queues.default.topology has no effect without kind = "rabbitmq"',
                 "kind=postgresql", "topology=direct"),
]  # fmt: skip
ROUTES = [
    Wrong(says, more, base=ROUTED) for says, more in (
        ("did you mean main?", ROUTE.replace("main", "mian")),
        ("add a section [queues.x]", ROUTE.replace("main", "x")),
        ("queues.spare is not used; name it in a [[route]]",
         '[queues.spare]\nkind = "sqlserver"\n'),
        ("destination of [[route]] 2 is not set; give it in the configuration file",
         '[[route]]\nconnection = "main"\n'),
        ("queue of [[route]] 2 is wrong: unknown placeholder {que}; use {queue}, {machine}",
         f'{ROUTE}queue = "{{que}}"\n'),
    )
]  # fmt: skip


@pytest.mark.parametrize(
    "wrong", [*UNKNOWN, *SHAPES, *MISSING, *VALUES, *MEANINGLESS, *ROUTES], ids=str
)
def test_setting_that_cannot_be_meant_is_refused(
    monkeypatch: pytest.MonkeyPatch, wrong: Wrong
) -> None:
    for name, value in wrong.env.items():
        monkeypatch.setenv(name, value)

    refusal = refusal_of(wrong.base + wrong.more, *wrong.given)

    assert refusal == wrong.says if wrong.exact else wrong.says in refusal
    for hidden in ("s3cret", "storeconfig", "DUESWEEP_ROUTE"):
        assert hidden not in refusal


@pytest.mark.parametrize(("variable", "near"), VARIABLES.items())
def test_unknown_section_of_the_environment_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, near: str
) -> None:
    monkeypatch.setenv(variable, "x")

    refusal = refusal_of()

    assert near in refusal
    assert variable in refusal


@pytest.mark.parametrize("variable", ["DUESWEEP_JARS", "OTHER_STROE__DSN", "STROE__DSN"])
def test_variable_that_is_no_setting_is_nobodys_business(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")

    load(file_of())


def test_everything_that_is_wrong_is_said_at_once() -> None:
    refusal = refusal_of('[store]\nschema = ""\n[sweep]\nbatch_rows = 0\nslises = 1')

    for wrong in ("store.dsn", "store.endpoint", "store.schema", "ledger", "batch_rows", "slises"):
        assert wrong in refusal
    assert "store is not set" not in refusal


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("retry.max_attempts", ["0", "two", "1000001"]),
        ("retry.initial_seconds", ["-1", "inf", "nan", "1e300"]),
        ("retry.max_seconds", ["inf", "nan"]),
        ("retry.max_exhausted_per_sweep", ["-1", "2147483648"]),
        ("sweep.batch_rows", ["0", "10001"]),
        ("sweep.batch_bytes", ["0", "2147483648"]),
        ("sweep.slices", ["-1"]),
    ],
)
def test_value_out_of_its_bounds_is_refused_by_name(setting: str, values: list[str]) -> None:
    for value in values:
        assert refusal_of(MINIMAL, f"{setting}={value}").startswith(f"{setting} is wrong: ")


@pytest.mark.parametrize(
    ("section", "keys"),
    [
        ("sweep", ["batch_rows", "batch_bytes", "slices", "look_ahead_seconds"]),
        (
            "retry",
            ["max_attempts", "initial_seconds", "max_seconds", "max_exhausted_per_sweep"],
        ),
        ("queues.main", ["max_in_flight"]),
    ],
)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("true", "it is true, and must be a number"),
        ('"60"', "it is text, and must be a number: write it without quotes"),
    ],
)
def test_what_is_no_number_in_the_file_is_refused(
    section: str, keys: list[str], value: str, words: str
) -> None:
    header = BROKER if section == "queues.main" else f"[{section}]\n"
    for key in keys:
        refusal = refusal_of(f"{MINIMAL}{header}{key} = {value}")

        assert refusal == f"{section}.{key} is wrong: {words}"


@pytest.mark.parametrize(
    "setting",
    [
        *("store.dsn", "store.jdbc_url", "store.endpoint", "store.name", "store.schema"),
        *("store.writer_time_zone", "store.delayed_table", "retry.error_queue", "ledger.root"),
        *("queues.default.dsn", "queues.default.schema"),
    ],
)
def test_text_of_nothing_but_spaces_is_empty(setting: str) -> None:
    for text in ("", " \t"):
        assert refusal_of(MINIMAL, f"{setting}={text}") == f"{setting} is wrong: it is empty"


def test_variable_that_cannot_be_read_is_not_blamed_on_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_STORE", "{")

    refusal = refusal_of()

    assert "TOML" not in refusal
    assert "store" in refusal


def test_refusal_and_its_stack_tell_no_secrets() -> None:
    text = MINIMAL.replace("dsn =", "dns =").replace('endpoint = "', "endpoint = 3 #")
    assert "s3cret" not in refusal_of(text)
    with pytest.raises(ConfigError) as refusal:
        load(file_of(MINIMAL.replace(":5432", ":x")))

    with pytest.raises(ValidationError) as error:
        Config.model_validate({"store": {"dns": "s3cret"}})

    assert "s3cret" in MINIMAL
    assert "s3cret" not in str(error.value)
    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))


def test_every_section_of_the_configuration_refuses_unknown_keys() -> None:
    for name, section in Config.model_fields.items():
        if name not in {"queues", "route", "limit"}:
            assert section.annotation is not None
            assert section.annotation.model_config["extra"] == "forbid"


def test_line_is_looked_for_only_for_the_problems_that_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each of thousands it would take minutes."""
    asked = Counter[str]()
    line_of = wording.line_of
    monkeypatch.setattr(
        wording, "line_of", lambda *of: line_of(*of) if not asked.update(["a"]) else None
    )

    refusal = refusal_of(ROUTED + f"{ROUTE}queeu = 'x'\n" * 500)

    assert refusal.endswith("and more")
    assert asked["a"] < 100
