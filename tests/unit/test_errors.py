"""Errors keep their fields, also when they travel from a Spark task to the driver; texts of others,
as a sentence or a terminal can take them.
"""

import pickle
import unicodedata
from inspect import getmembers, isclass, signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duesweep.core import errors, routing
from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    ExitCode,
    Problem,
    QueueNotFoundError,
    StoreError,
    TransactionLostError,
    format_stack,
    make_printable,
    raise_interruption,
    shorten,
)
from duesweep.core.result import exit_code_of
from duesweep.drivers.rabbitmq import errors as rabbitmq_errors
from duesweep.drivers.rabbitmq import management
from duesweep.queues.rabbitmq import session

_MODULES = (errors, routing, rabbitmq_errors, management, session)


def _families() -> list[type[DuesweepError]]:
    found = {c for module in _MODULES for _, c in getmembers(module, isclass)}
    return sorted((c for c in found if issubclass(c, DuesweepError)), key=lambda c: c.__name__)


def _error(kind: type[DuesweepError]) -> DuesweepError:
    wanted = signature(kind).parameters
    values: dict[str, Any] = {
        "code": 404,
        "text": "There is no\nqueue 'Billing' in vhost '/'; it was deleted",
        "transient": True,
        "destination_is_at_fault": True,
        "advice": "unlock it",
    }
    return kind(**{name: value for name, value in values.items() if name in wanted})


@pytest.mark.parametrize("kind", _families(), ids=lambda kind: kind.__name__)
def test_each_error_survives_pickling_with_all_its_fields(kind: type[DuesweepError]) -> None:
    error = _error(kind)

    travelled = pickle.loads(pickle.dumps(error))

    assert type(travelled) is kind
    assert travelled.args == error.args
    assert vars(travelled) == vars(error)
    assert (str(travelled), exit_code_of(travelled)) == (str(error), exit_code_of(error))


def test_an_error_of_its_own_with_other_arguments_survives_pickling() -> None:
    travelled = pickle.loads(pickle.dumps(_KeyedError(7)))

    assert (travelled.key, str(travelled)) == (7, "Message 7 is locked; wait")


def test_an_error_says_what_happened_and_then_what_to_do() -> None:
    error = ConfigError("There is no queue Billing; 3 wanted it", advice="create it")

    assert (error.text, error.advice) == ("There is no queue Billing; 3 wanted it", "create it")
    assert error.problem == Problem(error.text, "create it")
    assert str(error) == "There is no queue Billing; 3 wanted it; create it"
    without = ConfigError("There is no queue")
    assert (without.advice, str(without)) == (None, "There is no queue")


def test_every_family_takes_advice() -> None:
    families = {
        StoreError("It is locked", transient=False, advice="wait"): ExitCode.UNEXPECTED,
        DestinationError("It is locked", advice="wait"): ExitCode.WORK_LEFT,
        TransactionLostError("It is locked", advice="wait"): ExitCode.WORK_LEFT,
    }

    for error, code in families.items():
        assert (error.advice, exit_code_of(error)) == ("wait", code)


class _KeyedError(DuesweepError):
    def __init__(self, key: int) -> None:
        super().__init__(f"Message {key} is locked", advice="wait")
        self.key = key


def test_error_that_is_among_its_own_causes_is_no_interruption() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__context__ = second, first

    raise_interruption(first)

    second.__cause__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        raise_interruption(first)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\x9b31m", r"\x9b31m"),
        ("\x07\x08\r\n\x7f\0", r"\x07\x08\r\n\x7f\x00"),
        ("\u202egnilliB", r"\u202egnilliB"),
        ("Bill\u200bing\ufeff", r"Bill\u200bing\ufeff"),
        ("a\u2028b\ud800", r"a\u2028b\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\tb", "a\tb"),
        ("Größe 注文 \N{GRINNING FACE} [red]", "Größe 注文 \N{GRINNING FACE} [red]"),
    ],
)
def test_what_a_terminal_obeys_or_hides_is_printed_as_an_escape(text: str, printed: str) -> None:
    assert make_printable(text) == printed


@given(st.text(st.characters()))
def test_no_control_format_or_separator_character_is_left(text: str) -> None:
    found = {unicodedata.category(character) for character in make_printable(text)}

    assert not found & {"Cs", "Zl", "Zp"}
    assert "Cc" not in found or "\t" in text
    make_printable(text).encode()


def test_short_text_stays_and_a_long_one_keeps_its_ends() -> None:
    assert shorten("x" * 500) == "x" * 500
    assert shorten("a" * 300_000 + "z") == f"{'a' * 400} [299,501 more characters] {'a' * 99}z"


def test_error_that_quotes_a_whole_message_is_short_in_every_place() -> None:
    name = "n" * 300_000

    with pytest.raises(QueueNotFoundError) as caught:
        raise QueueNotFoundError(f"There is no queue {name}") from ValueError(name)

    assert len(str(caught.value)) < 600
    assert str(caught.value).startswith("There is no queue nnn")
    assert len(format_stack(caught.value)) < 21_000
    assert format_stack(caught.value).startswith("ValueError: nnn")
