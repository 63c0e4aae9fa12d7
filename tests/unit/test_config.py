"""Configuration: what goes over what, what is refused and how it is said, and what stays secret."""

import json
from pathlib import Path

import pytest

from duesweep.config import Config, jars, load, masked
from duesweep.errors import ConfigError

MINIMAL = """
[store]
dsn = "postgresql://sweeper:s3cret@db.example:5432/sales"
endpoint = "Sales.Orders"

[ledger]
root = "/ledger"
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(text: str = MINIMAL, name: str = "sales.toml") -> Path:
    path = Path(name).absolute()
    path.write_text(text, encoding="utf-8")
    return path


def _refused(text: str = MINIMAL, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        load(_file(text), overrides)
    return str(refusal.value)


def test_everything_but_store_and_ledger_has_a_default() -> None:
    assert masked(load(_file())) == {
        "store": {
            "kind": "postgresql",
            "dsn": "**********",
            "endpoint": "Sales.Orders",
            "name": None,
            "schema": "public",
            "delayed_table": None,
            "writer_time_zone": None,
        },
        "queues": {},
        "retry": {
            "max_attempts": 5,
            "initial_seconds": 30,
            "max_seconds": 3600,
            "error_queue": None,
            "max_exhausted_per_sweep": 1000,
        },
        "ledger": {"root": "/ledger"},
        "sweep": {"batch_rows": 1000, "batch_bytes": 8_000_000, "slices": 0},
    }


def test_file_in_the_current_folder_is_the_default() -> None:
    _file(name="duesweep.toml")

    assert load(None).store.endpoint == "Sales.Orders"


def test_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_STORE__DSN", "postgresql://db.example/sales")
    monkeypatch.setenv("DUESWEEP_STORE__ENDPOINT", "Sales.Orders")
    monkeypatch.setenv("DUESWEEP_LEDGER__ROOT", "/ledger")

    assert load(None).store.endpoint == "Sales.Orders"


def test_environment_goes_over_the_file_and_the_command_line_over_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = _file(MINIMAL + "[retry]\nmax_attempts = 2\ninitial_seconds = 2\nmax_seconds = 2\n")
    monkeypatch.setenv("DUESWEEP_RETRY__INITIAL_SECONDS", "3")
    monkeypatch.setenv("DUESWEEP_RETRY__MAX_SECONDS", "3")

    retry = load(file, ["retry.max_seconds=4"]).retry

    assert (retry.max_attempts, retry.initial_seconds, retry.max_seconds) == (2, 3, 4)


def test_one_file_leaves_nothing_to_the_next() -> None:
    load(_file(MINIMAL + "[sweep]\nslices = 7\n"))

    assert load(_file(name="other.toml")).sweep.slices == 0


@pytest.mark.parametrize(
    ("override", "schema"),
    [
        ("store.schema=my schema", "my schema"),
        (" store.schema =x", "x"),
        ("store.schema=a=b", "a=b"),
        ("store.schema=100", "100"),
    ],
)
def test_setting_on_the_command_line_is_what_follows_the_first_equals_sign(
    override: str, schema: str
) -> None:
    assert load(_file(), [override]).store.db_schema == schema


def test_later_setting_on_the_command_line_goes_over_an_earlier_one() -> None:
    assert load(_file(), ["sweep.slices=1", "sweep.slices=2"]).sweep.slices == 2


def test_queue_may_have_a_database_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__DSN", "postgresql://other/queues")

    dsn = load(_file()).queues["default"].dsn

    assert dsn is not None
    assert dsn.get_secret_value() == "postgresql://other/queues"


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (
            MINIMAL + "[retry]\nmax_atempts = 1",
            "retry.max_atempts; did you mean retry.max_attempts?",
        ),
        (MINIMAL + "[sweep]\nbatch_row = 1", "sweep.batch_row; did you mean sweep.batch_rows?"),
        (MINIMAL + "[retry]\nbatch_rows = 1", "retry.batch_rows; did you mean sweep.batch_rows?"),
        (MINIMAL + "[stroe]\nx = 1", "stroe; did you mean store?"),
        (
            MINIMAL + '[queues.default]\ndns = ""',
            "queues.default.dns; did you mean queues.default.dsn?",
        ),
        (MINIMAL.replace("endpoint", "db_schema"), "store.db_schema; did you mean store.schema?"),
        (MINIMAL + "[zzzzz]\nx = 1", "There is no setting zzzzz"),
    ],
)
def test_unknown_key_is_refused_with_the_nearest_known_key(text: str, near: str) -> None:
    assert near in _refused(text)


def test_unknown_key_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_STORE__ENDPIONT", "x")

    assert "store.endpiont; did you mean store.endpoint?" in _refused()


def test_unknown_key_of_the_command_line_is_refused() -> None:
    assert "sweep.slice; did you mean sweep.slices?" in _refused(MINIMAL, "sweep.slice=1")


@pytest.mark.parametrize("key", ["dsn", "endpoint"])
def test_missing_key_is_named_with_its_variable(key: str) -> None:
    lines = [line for line in MINIMAL.splitlines() if not line.startswith(key)]

    refusal = _refused("\n".join(lines))

    assert f"store.{key} is not set" in refusal
    assert f"DUESWEEP_STORE__{key.upper()}" in refusal


def test_everything_that_is_wrong_is_said_at_once() -> None:
    refusal = _refused('[store]\nschema = ""\n[sweep]\nbatch_rows = 0\nslises = 1')

    for wrong in ("store.dsn", "store.endpoint", "store.schema", "ledger", "batch_rows", "slises"):
        assert wrong in refusal


@pytest.mark.parametrize(
    "setting",
    [
        "store.kind=oracle",
        "store.endpoint=",
        "store.name=",
        "store.writer_time_zone=",
        "retry.max_attempts=0",
        "retry.max_attempts=two",
        "retry.initial_seconds=-1",
        "retry.initial_seconds=inf",
        "retry.initial_seconds=nan",
        "retry.max_seconds=inf",
        "retry.max_seconds=nan",
        "retry.max_exhausted_per_sweep=-1",
        "retry.error_queue=",
        "sweep.batch_rows=0",
        "sweep.batch_rows=10001",
        "sweep.batch_bytes=0",
        "sweep.slices=-1",
        "ledger.root=",
    ],
)
def test_value_out_of_its_bounds_is_refused_by_name(setting: str) -> None:
    assert _refused(MINIMAL, setting).startswith(f"{setting.partition('=')[0]} is wrong: ")


@pytest.mark.parametrize("override", ["slices", "", "store.endpoint"])
def test_setting_without_a_value_is_refused(override: str) -> None:
    assert "is not of the form section.key=value" in _refused(MINIMAL, override)


@pytest.mark.parametrize(
    "overrides",
    [
        ["store=x"],
        ["store.dsn.x=1"],
        ["store=x", "store.dsn=y"],
        ["sweep.slices=1", "sweep.slices.x=1"],
    ],
    ids=" and ".join,
)
def test_setting_that_is_no_key_of_a_section_is_refused(overrides: list[str]) -> None:
    _refused(MINIMAL, *overrides)


def test_second_queue_is_refused() -> None:
    assert "queues.other is not used" in _refused(MINIMAL + "[queues.other]\n")


def test_file_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"There is no configuration file .*absent\.toml"):
        load(Path("absent.toml"))


@pytest.mark.parametrize("text", ["[store", 'x = "', "store"])
def test_file_that_is_not_toml_is_refused_by_name(text: str) -> None:
    assert "sales.toml is not TOML" in _refused(text)


def test_variable_that_cannot_be_read_is_not_blamed_on_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_STORE", "{")

    refusal = _refused()

    assert "TOML" not in refusal
    assert "store" in refusal


def test_secrets_are_masked_for_people_and_in_every_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__DEFAULT__DSN", "postgresql://q:0ther@db.example/q")
    config = load(_file())

    shown = json.dumps(masked(config)) + repr(config) + str(config) + config.model_dump_json()

    assert "s3cret" not in shown
    assert "0ther" not in shown
    assert shown.count("*****") >= 2
    assert config.store.dsn.get_secret_value().endswith("s3cret@db.example:5432/sales")


def test_refusal_tells_no_secrets() -> None:
    refusal = _refused(MINIMAL.replace("dsn =", "dns =").replace('endpoint = "', "endpoint = 3 #"))

    assert "s3cret" not in refusal


def test_configuration_cannot_be_changed() -> None:
    config = load(_file())

    with pytest.raises(ValueError, match="frozen"):
        config.ledger = config.ledger
    with pytest.raises(ValueError, match="frozen"):
        config.sweep.slices = 3


def test_jars_are_those_of_the_folder_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("b.jar", "a.jar", "c.txt"):
        (tmp_path / name).touch()
    monkeypatch.setenv("DUESWEEP_JARS", str(tmp_path))

    assert jars() == [tmp_path / "a.jar", tmp_path / "b.jar"]


def test_folder_without_jars_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DUESWEEP_JARS", str(tmp_path))

    with pytest.raises(ConfigError, match="there are no jars"):
        jars()


def test_without_a_folder_there_are_no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUESWEEP_JARS", raising=False)

    assert jars() == ()


def test_every_section_of_the_configuration_refuses_unknown_keys() -> None:
    for name, section in Config.model_fields.items():
        if name != "queues":
            assert section.annotation is not None
            assert section.annotation.model_config["extra"] == "forbid"
