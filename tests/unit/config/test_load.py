"""Configuration: which source overrides which, secrets, and the file as bytes."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Barrier

import pytest

from duesweep.config import (
    has_cluster_files,
    load,
    mask_secrets,
    settings_of,
    spark_start,
)
from duesweep.core.errors import ConfigError
from duesweep.core.submit import take_options
from support.commands import run
from support.config_files import MINIMAL, SQL_SERVER, file_of


def test_file_in_the_current_folder_is_the_default() -> None:
    file_of(name="duesweep.toml")

    assert load(None).store.endpoint == "Sales.Orders"


def test_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_STORE__DSN", "postgresql://db.example/sales")
    monkeypatch.setenv("DUESWEEP_STORE__ENDPOINT", "Sales.Orders")
    monkeypatch.setenv("DUESWEEP_LEDGER__ROOT", "/ledger")

    assert load(None).store.endpoint == "Sales.Orders"


def test_environment_overrides_the_file_and_the_command_line_overrides_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = file_of(MINIMAL + "[retry]\nmax_attempts = 2\ninitial_seconds = 2\nmax_seconds = 2\n")
    monkeypatch.setenv("DUESWEEP_RETRY__INITIAL_SECONDS", "3")
    monkeypatch.setenv("DUESWEEP_RETRY__MAX_SECONDS", "3")

    retry = load(file, ["retry.max_seconds=4"]).retry

    assert (retry.max_attempts, retry.initial_seconds, retry.max_seconds) == (2, 3, 4)


def test_numbers_of_environment_and_command_line_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_SWEEP__BATCH_ROWS", "17")
    monkeypatch.setenv("DUESWEEP_RETRY__MAX_ATTEMPTS", " 9 ")
    monkeypatch.setenv("DUESWEEP_RETRY__INITIAL_SECONDS", "1.5")
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__READABLE_BODY", "True")

    config = load(file_of(), ["sweep.slices=3", "retry.max_seconds=2.5"])

    assert (config.sweep.batch_rows, config.sweep.slices) == (17, 3)
    assert config.queues["default"].readable_body is True
    assert config.retry.max_attempts == 9
    assert (config.retry.initial_seconds, config.retry.max_seconds) == (1.5, 2.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [*((text, True) for text in ("true", "yes", "on", "1")), ("No", False), ("off", False)],
)
def test_yes_or_no_is_written_as_usual_in_the_environment_or_command_line(
    text: str, monkeypatch: pytest.MonkeyPatch, *, value: bool
) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__READABLE_BODY", text)
    config, given = load(file_of()), load(file_of(), [f"queues.default.readable_body={text}"])

    assert config.queues["default"].readable_body is given.queues["default"].readable_body is value


def test_one_file_leaves_nothing_to_the_next() -> None:
    load(file_of(MINIMAL + "[sweep]\nslices = 7\n"))

    assert load(file_of(name="other.toml")).sweep.slices == 0


def test_list_of_environment_or_command_line_is_written_as_in_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_SWEEP__ALLOW_DESTINATIONS", '["Billing*", "Sales"]')
    limits = "limit=[{destination = 'Billing', per_second = 5}]"

    config = load(file_of(), [limits])

    assert config.sweep.allow_destinations == ("Billing*", "Sales")
    assert [(one.destination, one.per_second) for one in config.limit] == [("Billing", 5)]


def test_threads_load_files_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other between reading its file and making the configuration."""
    barrier = Barrier(2)
    module = import_module("duesweep.config.files")
    read = module.content_of
    monkeypatch.setattr(module, "content_of", lambda file: (read(file), barrier.wait(10))[0])
    names = [f"Sales{number}" for number in range(8)]
    texts = [MINIMAL.replace('"Sales.Orders"', f'"{name}"') for name in names]
    files = [file_of(text, name=f"{name}.toml") for text, name in zip(texts, names, strict=True)]

    with ThreadPoolExecutor(2) as pool:
        loaded = list(pool.map(load, files))

    assert [config.store.endpoint for config in loaded] == names


@pytest.mark.parametrize(
    ("overrides", "schema"),
    [
        (["store.schema=my schema"], "my schema"),
        ([" store.schema =x"], "x"),
        (["store.schema=a=b"], "a=b"),
        (["store.schema=100"], "100"),
        (["store.schema=earlier", "store.schema=later"], "later"),
    ],
)
def test_setting_on_the_command_line_is_what_follows_the_first_equals_sign(
    overrides: list[str], schema: str
) -> None:
    assert load(file_of(), overrides).store.db_schema == schema


def test_secrets_are_masked_for_people_and_in_every_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    on_sql_server = load(file_of(SQL_SERVER), ["store.jdbc_url=jdbc:sqlserver://h;password=0ther"])
    other = "postgresql://q:0ther@db.example/q"
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__DSN", other)
    config = load(file_of())

    shown = json.dumps(mask_secrets(config)) + repr(config) + str(config) + config.model_dump_json()

    assert "s3cret" not in shown
    assert "0ther" not in shown
    assert shown.count("*****") >= 2
    assert config.store.dsn.get_secret_value().endswith("s3cret@db.example:5432/sales")
    (dsn,) = (queue.dsn for queue in config.queues.values())
    assert dsn is not None
    assert dsn.get_secret_value() == other
    shown = repr(on_sql_server) + on_sql_server.model_dump_json()
    assert ("s3cret" in shown, "0ther" in shown) == (False, False)


def test_options_of_a_custom_store_are_masked_whatever_they_are() -> None:
    options = (
        '[store.options]\nwallet = "s3cret"\nport = 5099\n[store.options.more]\nkey = "0ther"\n'
    )
    custom = ["store.kind=acme:Store", "queues.default.kind=postgresql"]
    config = load(file_of(MINIMAL.replace("[ledger]", options + "[ledger]")), custom)

    shown = mask_secrets(config)

    assert shown["store"]["options"] == dict.fromkeys(["wallet", "port", "more"], "*" * 10)
    for secret in ("s3cret", "5099", "0ther"):
        assert secret not in json.dumps(shown) + repr(config)
    assert config.store.options["wallet"] == "s3cret"


def test_configuration_cannot_be_changed() -> None:
    config = load(file_of())

    with pytest.raises(ValueError, match="frozen"):
        config.ledger = config.ledger
    with pytest.raises(ValueError, match="frozen"):
        config.sweep.slices = 3


@pytest.mark.parametrize(
    "variable", ["PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "DATABRICKS_RUNTIME_VERSION"]
)
def test_session_that_others_prepare_is_left_as_it_is(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")

    assert spark_start() is None


def test_options_of_spark_may_mean_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_cluster_files()

    options, _ = take_options(["sweep", "--conf", "spark.hadoop.fs.s3a.endpoint=x"])
    monkeypatch.setattr("duesweep.core.submit.command_line", options)

    assert has_cluster_files()


def test_options_of_spark_are_those_of_the_last_command_line() -> None:
    for line, expected in ((["--master", "x"], ["--master", "x"]), ([], [])):
        run("config", *line, "--config", "nowhere.toml")

        assert spark_start().words == expected


def _file(content: bytes) -> Path:
    path = Path("sales.toml").absolute()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_file_of_any_editor_is_read(encoding: str, end: str) -> None:
    text = MINIMAL.replace("Sales.Orders", "Söle.Orders").replace("\n", end)

    assert load(_file(text.encode(encoding))).store.endpoint == "Söle.Orders"


def test_file_that_may_not_be_read_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: str) -> None:
        raise PermissionError(13, "Permission denied", str(path), mode)

    file = _file(MINIMAL.encode())
    monkeypatch.setattr(Path, "open", refuse)

    with pytest.raises(ConfigError, match=r"sales\.toml cannot be read: Permission denied"):
        load(file)


def test_relative_path_of_a_file_begins_at_the_file_and_others_at_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = MINIMAL.replace('"/ledger"', '"./{ledger}"') + (
        '[queues.rabbit]\nkind = "rabbitmq"\nurl = "amqps://rabbit.example"\n'
        'ca_file = "ca.pem"\nclient_certificate = "tls/own.pem"\nclient_key = "/keys/own.pem"\n'
        '[[route]]\ndestination = "Other"\nconnection = "other"\n'
        '[[route]]\ndestination = "*"\nconnection = "rabbit"\n'
        '[queues.other]\ndsn = "postgresql://db/other?sslcert=own.pem"\n'
        '[metrics]\ntextfile = "../sweep.prom"\n'
    )
    text = re.sub('(?m)^dsn = "[^"]*', r"\g<0>?passfile=pass", text, count=1)
    folder = tmp_path / "etc"
    folder.mkdir()
    own = text.format(ledger="ledger").replace("[store]", "[defaults.store]")
    shared = re.sub(r"^\[(?=ledger|queues|metrics)", "[defaults.", own, flags=re.MULTILINE)
    fleet = shared.replace("[[route]]", "[[defaults.route]]").replace(
        'endpoint = "Sales.Orders"', ""
    )
    (folder / "one.toml").write_text(text.format(ledger="ledger"), encoding="utf-8")
    (folder / "two.toml").write_text(
        f'{fleet}[[endpoint]]\nstore.endpoint = "Mails"\nledger.root = "mails/ledger"\n',
        encoding="utf-8",
    )
    elsewhere = tmp_path / "home"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    one, two = (load(each) for each in settings_of([Path("../etc")]))

    at = elsewhere / "../etc"
    assert (one.ledger.root, two.ledger.root) == (f"{at}/ledger", f"{at}/mails/ledger")
    assert one.metrics.textfile == two.metrics.textfile == f"{at}/../sweep.prom"
    for config in (one, two):
        rabbit = config.queues["rabbit"]
        assert rabbit.ca_file == f"{at}/ca.pem"
        assert rabbit.client_certificate == f"{at}/tls/own.pem"
        assert rabbit.client_key == "/keys/own.pem"
        assert config.store.dsn.get_secret_value().endswith(f"?passfile={at}/pass")
        assert str(config.queues["other"].dsn.get_secret_value()).endswith(f"={at}/own.pem")
    monkeypatch.setenv("DUESWEEP_QUEUES__RABBIT__CA_FILE", "other.pem")
    given = load(folder / "one.toml", ["ledger.root=./ledger"])
    assert (given.ledger.root, given.queues["rabbit"].ca_file) == ("./ledger", "other.pem")


@pytest.mark.parametrize("root", ["s3://bucket/ledger", "main.ledgers", "~/ledger", "dbfs:/ledger"])
def test_root_that_is_no_relative_path_stays_as_it_is_written(root: str) -> None:
    assert load(file_of(MINIMAL.replace("/ledger", root))).ledger.root == root


def test_working_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(ConfigError, match="the working folder, which was deleted"):
        load(None)
