"""Configuration: values of the wrong type or size, and names that mean nothing."""

from pathlib import Path

import pytest

from duesweep.config import load
from duesweep.errors import ConfigError
from support.config_files import MINIMAL, file_of, without_place

BROKER = '[queues.main]\nkind = "rabbitmq"\nurl = "amqp://broker"\n'
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _refused(text: str = MINIMAL, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        load(file_of(text), overrides)
    return without_place(str(refusal.value))


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("[sweep]\nbatch_rows = ", "sweep.batch_rows"),
        ("[sweep]\nbatch_bytes = ", "sweep.batch_bytes"),
        ("[sweep]\nslices = ", "sweep.slices"),
        ("[sweep]\nlook_ahead_seconds = ", "sweep.look_ahead_seconds"),
        ("[retry]\nmax_attempts = ", "retry.max_attempts"),
        ("[retry]\ninitial_seconds = ", "retry.initial_seconds"),
        ("[retry]\nmax_seconds = ", "retry.max_seconds"),
        ("[retry]\nmax_exhausted_per_sweep = ", "retry.max_exhausted_per_sweep"),
        (f"{BROKER}max_in_flight = ", "queues.main.max_in_flight"),
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
    more: str, key: str, value: str, words: str
) -> None:
    assert _refused(MINIMAL + more + value) == f"{key} is wrong: {words}"


@pytest.mark.parametrize("value", ["5.0", "5.5", "1e3"])
def test_whole_number_with_a_fraction_is_refused(value: str) -> None:
    expected = "sweep.slices is wrong: it must be a whole number, without a decimal point"

    assert _refused(f"{MINIMAL}[sweep]\nslices = {value}\n") == expected
    assert _refused(MINIMAL, f"sweep.slices={value}") == expected


def test_number_where_text_belongs_is_refused() -> None:
    expected = "store.name is wrong: it is a number, and must be text: write it in quotes"
    numbered = MINIMAL.replace("[store]", "[store]\nname = 7")

    assert _refused(numbered) == expected


def test_numbers_of_environment_and_command_line_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_SWEEP__BATCH_ROWS", "17")
    monkeypatch.setenv("DUESWEEP_RETRY", '{"max_attempts": 9, "initial_seconds": "1.5"}')

    config = load(file_of(), ["sweep.slices=3", "retry.max_seconds=2.5"])

    assert (config.sweep.batch_rows, config.sweep.slices) == (17, 3)
    assert config.retry.max_attempts == 9
    assert (config.retry.initial_seconds, config.retry.max_seconds) == (1.5, 2.5)


def test_truth_of_the_environment_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_RETRY", '{"max_attempts": true}')

    assert "retry.max_attempts is wrong: it is true" in _refused()


@pytest.mark.parametrize(
    "setting",
    [
        "retry.max_attempts=1000001",
        "retry.max_exhausted_per_sweep=2147483648",
        "sweep.batch_bytes=2147483648",
        "retry.initial_seconds=1e300",
    ],
)
def test_number_beyond_all_use_is_refused_by_name(setting: str) -> None:
    assert _refused(MINIMAL, setting).startswith(f"{setting.partition('=')[0]} is wrong: ")


def test_longest_back_off_is_no_shorter_than_the_first() -> None:
    assert _refused(MINIMAL, "retry.max_seconds=10") == (
        "retry.max_seconds is 10, less than retry.initial_seconds, 30 by default; set "
        "retry.initial_seconds to at most 10, or retry.max_seconds to at least 30"
    )
    assert _refused(MINIMAL + "[retry]\ninitial_seconds = 20.5\nmax_seconds = 7").startswith(
        "retry.max_seconds is 7, less than retry.initial_seconds, 20.5; "
    )


@pytest.mark.parametrize(
    "setting",
    [
        "store.dsn",
        "store.endpoint",
        "store.name",
        "store.schema",
        "store.delayed_table",
        "retry.error_queue",
        "ledger.root",
        "queues.default.schema",
    ],
)
def test_text_of_nothing_but_spaces_is_empty(setting: str) -> None:
    assert _refused(MINIMAL, f"{setting}= \t") == f"{setting} is wrong: it is empty"


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_queue_connection_has_a_name(name: str) -> None:
    refusal = _refused(
        f'{MINIMAL}[queues."{name}"]\ndsn = "postgresql://h/d"\n'.replace("\t", "\\t")
    )

    assert refusal == "queues has a section with an empty name; name it, as [queues.default]"


def test_names_of_connections_differ_by_more_than_case() -> None:
    two = "[queues.main]\nschema = 'a'\n[queues.Main]\nschema = 'b'\n"

    assert _refused(MINIMAL + two) == (
        "queues.Main and queues.main differ only by case, and environment variables are not "
        "case-sensitive; rename one of them"
    )


def test_variable_is_for_the_connection_however_the_file_writes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DUESWEEP_QUEUES__EAST__URL", "amqp://east")
    text = '[queues.East]\nkind = "rabbitmq"\n[[route]]\ndestination = "*"\nconnection = "East"\n'

    assert load(file_of(MINIMAL + text)).queues["East"].urls == ("amqp://east",)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (f"{BROKER}urll = 'x'\n", "queues.main.urll; did you mean queues.main.url?"),
        (
            f"{BROKER}{ROUTE}[[route]]\ndestinaton = 'x'\nconnection = 'main'",
            "destinaton in [[route]] 2; did you mean route.destination?",
        ),
        ("[[routes]]\ndestination = 'x'", "routes; did you mean route?"),
        ("[[queues]]\nurl = 'x'", "queues is wrong: it must be one section for each connection"),
        (
            f"{BROKER}[route]\ndestination = '*'\nconnection = 'main'",
            "route is wrong: it is a list of sections, each with the header [[route]]",
        ),
    ],
)
def test_unknown_key_of_a_named_section_is_hinted_at_in_that_section(text: str, near: str) -> None:
    assert near in _refused(MINIMAL + text)


@pytest.mark.parametrize(
    ("gone", "path", "toml"),
    [
        ('[ledger]\nroot = "/ledger"', "ledger.root", "root = … under [ledger]"),
        ('root = "/ledger"', "ledger.root", "root = … under [ledger]"),
        ('endpoint = "Sales.Orders"', "store.endpoint", "endpoint = … under [store]"),
    ],
)
def test_missing_value_is_named_with_all_ways_to_give_it(gone: str, path: str, toml: str) -> None:
    variable = f"DUESWEEP_{path.upper().replace('.', '__')}"

    assert _refused(MINIMAL.replace(gone, "")) == (
        f"{path} is not set; write {toml} in the configuration file, set {variable} in the "
        f"environment, or give --set {path}=…"
    )


def test_section_that_is_missing_misses_all_that_it_must_hold() -> None:
    refusal = _refused('[ledger]\nroot = "/ledger"')

    assert "store.dsn is not set" in refusal
    assert "store.endpoint is not set" in refusal
    assert "store is not set" not in refusal


def test_missing_key_of_a_route_is_given_in_the_file_alone() -> None:
    refusal = _refused(f"{MINIMAL}{BROKER}[[route]]\nconnection = 'main'")

    assert refusal == (
        "destination of [[route]] 1 is not set; give it in the configuration file, as "
        "destination = … under it"
    )


def test_missing_url_of_a_broker_is_named_with_its_variable() -> None:
    text = f'{MINIMAL}[queues.Main]\nkind = "rabbitmq"\n{ROUTE.replace("main", "Main")}'

    assert "DUESWEEP_QUEUES__MAIN__URL" in _refused(text)
