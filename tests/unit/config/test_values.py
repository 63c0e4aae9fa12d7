"""Configuration: values of the wrong type or size, and names that mean nothing."""

import pytest

from duesweep.config import load
from support.config_files import MINIMAL, file_of, refusal_of

BROKER = '[queues.main]\nkind = "rabbitmq"\nurl = "amqp://broker"\n'
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n'


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
    assert refusal_of(MINIMAL + more + value) == f"{key} is wrong: {words}"


@pytest.mark.parametrize("value", ["5.0", "5.5", "1e3"])
def test_whole_number_with_a_fraction_is_refused(value: str) -> None:
    expected = "sweep.slices is wrong: it must be a whole number, without a decimal point"

    assert refusal_of(f"{MINIMAL}[sweep]\nslices = {value}\n") == expected
    assert refusal_of(MINIMAL, f"sweep.slices={value}") == expected


def test_number_where_text_belongs_is_refused() -> None:
    expected = "store.name is wrong: it is a number, and must be text: write it in quotes"
    numbered = MINIMAL.replace("[store]", "[store]\nname = 7")

    assert refusal_of(numbered) == expected


def test_numbers_of_environment_and_command_line_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_SWEEP__BATCH_ROWS", "17")
    monkeypatch.setenv("DUESWEEP_RETRY", '{"max_attempts": 9, "initial_seconds": "1.5"}')

    config = load(file_of(), ["sweep.slices=3", "retry.max_seconds=2.5"])

    assert (config.sweep.batch_rows, config.sweep.slices) == (17, 3)
    assert config.retry.max_attempts == 9
    assert (config.retry.initial_seconds, config.retry.max_seconds) == (1.5, 2.5)


def test_truth_of_the_environment_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUESWEEP_RETRY", '{"max_attempts": true}')

    assert "retry.max_attempts is wrong: it is true" in refusal_of()


def test_longest_back_off_is_no_shorter_than_the_first() -> None:
    assert refusal_of(MINIMAL, "retry.max_seconds=10") == (
        "retry.max_seconds is 10, less than retry.initial_seconds, 30 by default; set "
        "retry.initial_seconds to at most 10, or retry.max_seconds to at least 30"
    )
    assert refusal_of(MINIMAL + "[retry]\ninitial_seconds = 20.5\nmax_seconds = 7").startswith(
        "retry.max_seconds is 7, less than retry.initial_seconds, 20.5; "
    )


@pytest.mark.parametrize(
    "setting",
    [
        "store.dsn",
        "store.jdbc_url",
        "store.endpoint",
        "store.name",
        "store.schema",
        "store.writer_time_zone",
        "store.delayed_table",
        "retry.error_queue",
        "ledger.root",
        "queues.default.dsn",
        "queues.default.schema",
    ],
)
@pytest.mark.parametrize("text", ["", " \t"])
def test_text_of_nothing_but_spaces_is_empty(setting: str, text: str) -> None:
    assert refusal_of(MINIMAL, f"{setting}={text}") == f"{setting} is wrong: it is empty"


@pytest.mark.parametrize("name", ["", " ", "\t"])
def test_queue_connection_has_a_name(name: str) -> None:
    refusal = refusal_of(
        f'{MINIMAL}[queues."{name}"]\ndsn = "postgresql://h/d"\n'.replace("\t", "\\t")
    )

    assert refusal == "queues has a section with an empty name; name it, as [queues.default]"


def test_names_of_connections_differ_by_more_than_case() -> None:
    two = "[queues.main]\nschema = 'a'\n[queues.Main]\nschema = 'b'\n"

    assert refusal_of(MINIMAL + two) == (
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
    assert near in refusal_of(MINIMAL + text)


@pytest.mark.parametrize(
    ("gone", "path", "toml"),
    [
        ('[ledger]\nroot = "/ledger"', "ledger.root", "root = … under [ledger]"),
        ('root = "/ledger"', "ledger.root", "root = … under [ledger]"),
        ('endpoint = "Sales.Orders"', "store.endpoint", "endpoint = … under [store]"),
        (
            'dsn = "postgresql://sweeper:s3cret@db.example:5432/sales"',
            "store.dsn",
            "dsn = … under [store]",
        ),
    ],
)
def test_missing_value_is_named_with_all_ways_to_give_it(gone: str, path: str, toml: str) -> None:
    variable = f"DUESWEEP_{path.upper().replace('.', '__')}"

    assert refusal_of(MINIMAL.replace(gone, "")) == (
        f"{path} is not set; write {toml} in the configuration file, set {variable} in the "
        f"environment, or give --set {path}=…"
    )


def test_section_that_is_missing_misses_all_that_it_must_hold() -> None:
    refusal = refusal_of('[ledger]\nroot = "/ledger"')

    assert "store.dsn is not set" in refusal
    assert "store.endpoint is not set" in refusal
    assert "store is not set" not in refusal


def test_missing_key_of_a_route_is_given_in_the_file_alone() -> None:
    refusal = refusal_of(f"{MINIMAL}{BROKER}[[route]]\nconnection = 'main'")

    assert refusal == (
        "destination of [[route]] 1 is not set; give it in the configuration file, as "
        "destination = … under it"
    )


def test_missing_url_of_a_broker_is_named_with_its_variable() -> None:
    text = f'{MINIMAL}[queues.Main]\nkind = "rabbitmq"\n{ROUTE.replace("main", "Main")}'

    assert "DUESWEEP_QUEUES__MAIN__URL" in refusal_of(text)
