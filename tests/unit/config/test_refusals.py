"""Configuration: which settings are refused, and with which text."""

import traceback
from pathlib import Path

import pytest

from duesweep.config import Config, load
from duesweep.errors import ConfigError
from support.config_files import MINIMAL, file_of, refusal_of


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
    assert near in refusal_of(text)


def test_unknown_key_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_STORE__ENDPIONT", "x")

    assert "store.endpiont; did you mean store.endpoint?" in refusal_of()


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("DUESWEEP_RETRYY__ERROR_QUEUE", "retryy.error_queue; did you mean retry.error_queue?"),
        ("duesweep_stroe__dsn", "stroe.dsn; did you mean store.dsn?"),
        ("DUESWEEP_QUEUE__DEFAULT__DSN", "did you mean queues.default.dsn?"),
        ("DUESWEEP__STORE__DSN", "_store.dsn; did you mean store.dsn?"),
    ],
)
def test_unknown_section_of_the_environment_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, near: str
) -> None:
    monkeypatch.setenv(variable, "x")

    refusal = refusal_of()

    assert near in refusal
    assert variable in refusal


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("DUESWEEP_LEDGER_ROOT", "DUESWEEP_LEDGER__ROOT"),
        ("DUESWEEP_STORE_SCHEMA", "DUESWEEP_STORE__SCHEMA"),
        ("DUESWEEP_QUEUES_DEFAULT_DSN", "DUESWEEP_QUEUES__DEFAULT__DSN"),
        ("DUESWEEP_QUEUES__DEFAULT_DSN", "DUESWEEP_QUEUES__DEFAULT__DSN"),
    ],
)
def test_variable_that_lacks_an_underscore_is_refused_with_the_right_one(
    monkeypatch: pytest.MonkeyPatch, variable: str, meant: str
) -> None:
    monkeypatch.setenv(variable, "x")

    assert refusal_of() == f"{variable} is set in the environment; did you mean {meant}?"


@pytest.mark.parametrize("variable", ["DUESWEEP_JARS", "OTHER_STROE__DSN", "STROE__DSN"])
def test_variable_that_is_no_setting_is_nobodys_business(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "x")

    load(file_of())


def test_unknown_key_of_the_command_line_is_refused() -> None:
    assert "sweep.slice; did you mean sweep.slices?" in refusal_of(MINIMAL, "sweep.slice=1")


def test_everything_that_is_wrong_is_said_at_once() -> None:
    refusal = refusal_of('[store]\nschema = ""\n[sweep]\nbatch_rows = 0\nslises = 1')

    for wrong in ("store.dsn", "store.endpoint", "store.schema", "ledger", "batch_rows", "slises"):
        assert wrong in refusal


@pytest.mark.parametrize(
    "setting",
    [
        "store.kind=oracle",
        "retry.max_attempts=0",
        "retry.max_attempts=two",
        "retry.initial_seconds=-1",
        "retry.initial_seconds=inf",
        "retry.initial_seconds=nan",
        "retry.max_seconds=inf",
        "retry.max_seconds=nan",
        "retry.max_exhausted_per_sweep=-1",
        "retry.max_attempts=1000001",
        "retry.max_exhausted_per_sweep=2147483648",
        "retry.initial_seconds=1e300",
        "sweep.batch_rows=0",
        "sweep.batch_rows=10001",
        "sweep.batch_bytes=0",
        "sweep.batch_bytes=2147483648",
        "sweep.slices=-1",
    ],
)
def test_value_out_of_its_bounds_is_refused_by_name(setting: str) -> None:
    assert refusal_of(MINIMAL, setting).startswith(f"{setting.partition('=')[0]} is wrong: ")


@pytest.mark.parametrize("override", ["slices", "", "store.endpoint"])
def test_setting_without_a_value_is_refused(override: str) -> None:
    assert "is not of the form section.key=value" in refusal_of(MINIMAL, override)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["store=x"], "store is wrong: it is a section, and a value was given"),
        (["queues=x"], "queues is wrong: it is a section, and a value was given"),
        (["queues.default=x"], "queues.default is wrong: it is a section"),
        (["route=x"], "route is wrong: it is a list of sections, each with the header [[route]]"),
        (["store.dsn.x=1"], "store.dsn is wrong: input should be a valid string"),
        (
            ["store=x", "store.dsn=y"],
            "--set store.dsn: another --set gives store a value, so it is no section",
        ),
        (
            ["sweep.slices=1", "sweep.slices.x=1"],
            "sweep.slices.x: another --set gives slices a value",
        ),
    ],
)
def test_setting_that_is_no_key_of_a_section_is_refused(overrides: list[str], words: str) -> None:
    refusal = refusal_of(MINIMAL, *overrides)

    assert words in refusal
    assert "storeconfig" not in refusal


def test_file_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"There is no configuration file .*absent\.toml"):
        load(Path("absent.toml"))


@pytest.mark.parametrize("text", ["[store", 'x = "', "store"])
def test_file_that_is_not_toml_is_refused_by_name(text: str) -> None:
    assert "sales.toml is not valid TOML" in refusal_of(text)


def test_variable_that_cannot_be_read_is_not_blamed_on_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_STORE", "{")

    refusal = refusal_of()

    assert "TOML" not in refusal
    assert "store" in refusal


def test_refusal_tells_no_secrets() -> None:
    refusal = refusal_of(
        MINIMAL.replace("dsn =", "dns =").replace('endpoint = "', "endpoint = 3 #")
    )

    assert "s3cret" not in refusal


@pytest.mark.parametrize("setting", ["store.kind", "queues.default.kind"])
@pytest.mark.parametrize("value", ["postgresql://a:s3cret@db/sales", "Server=db;Pwd=s3cret"])
def test_dsn_in_the_place_of_a_kind_is_not_shown(setting: str, value: str) -> None:
    refusal = refusal_of(MINIMAL, f"{setting}={value}")

    assert f"{setting} is wrong: it is a dsn, and must be" in refusal
    assert "s3cret" not in refusal


def test_every_section_of_the_configuration_refuses_unknown_keys() -> None:
    for name, section in Config.model_fields.items():
        if name not in {"queues", "route", "limit"}:
            assert section.annotation is not None
            assert section.annotation.model_config["extra"] == "forbid"


def test_section_that_is_given_as_a_value_names_the_variables_of_its_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DUESWEEP_LEDGER", "/var/lib/ledger")
    file = tmp_path / "duesweep.toml"
    file.write_text('[store]\ndsn = "host=db"\nendpoint = "Sales"\n')

    with pytest.raises(ConfigError, match="as DUESWEEP_LEDGER__ROOT"):
        load(file)


def test_stack_of_a_refusal_tells_no_secrets() -> None:
    with pytest.raises(ConfigError) as refusal:
        load(file_of(MINIMAL.replace(":5432", ":x")))

    assert "s3cret" in MINIMAL
    assert "s3cret" not in "".join(traceback.format_exception(refusal.value))
