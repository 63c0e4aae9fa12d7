"""Time, chance and ids come from `World` alone, so that a test can decide them; the store's clock
says how long until a message is due, and how late it is.
"""

import ast
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import duesweep
from duesweep.core.message import Message
from duesweep.core.world import SettableClock, StoreClock, World, instant_of, late_ms, micros
from duesweep_testing.builders import message

_LIB = Path(duesweep.__file__).parent
_BANNED = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "random",
    "secrets",
    "time",
    "uuid.uuid1",
    "uuid.uuid4",
}


@pytest.mark.parametrize("package", ["sweep", "stores", "queues", "ledger"])
def test_nothing_else_is_a_source_of_time_chance_and_ids(package: str) -> None:
    files = sorted((_LIB / package).rglob("*.py"))

    found = [
        f"{file.relative_to(_LIB)}:{line} {name}"
        for file in files
        for line, name in _sources(ast.parse(file.read_text("utf-8")))
    ]

    assert files
    assert found == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import time\ntime.sleep(1)", ["time.sleep"]),
        ("from time import monotonic\nmonotonic()", ["time.monotonic"]),
        ("import uuid as u\nu.uuid4()", ["uuid.uuid4"]),
        ("from datetime import datetime\ndatetime.now()", ["datetime.datetime.now"]),
        ("import random\nrandom.Random()", ["random.Random"]),
        ("import random\ndef draw(rng: random.Random): rng.random()", []),
        ("from datetime import timedelta\ntimedelta(seconds=1).total_seconds()", []),
        ("from uuid import UUID\nUUID(int=1)", []),
    ],
)
def test_sources_are_found_however_they_are_imported(text: str, names: list[str]) -> None:
    assert [name for _, name in _sources(ast.parse(text))] == names


def test_world_travels_to_tasks_and_draws_other_numbers_there() -> None:
    world = World()

    there = pickle.loads(pickle.dumps(world))

    assert there.chance().random() != world.chance().random()
    assert there.new_id() != world.new_id()


def test_clock_that_stands_still_moves_when_it_is_told_to() -> None:
    clock = SettableClock()
    before = clock.now()

    clock.sleep(90)

    assert clock.seconds() == 90
    assert (clock.now() - before).total_seconds() == 90


def _sources(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The calls of banned functions, with their lines; annotations are no calls."""
    names: dict[str, str] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            head, _, rest = ast.unparse(node.func).partition(".")
            name = names.get(head, "") + (f".{rest}" if rest else "")
            if any(name == banned or name.startswith(f"{banned}.") for banned in _BANNED):
                yield node.lineno, name


microseconds = st.integers(-(2**62), 2**62)


def due_at(instant_us: int | None, due_us: int | None = None) -> Message:
    """A claimed message; its Due, where it is not given, is UTC's."""
    due_us = instant_us if due_us is None else due_us
    return message()._replace(due_us=due_us, instant_us=instant_us)


def test_clock_goes_on_from_the_servers_time() -> None:
    clock = SettableClock(500.0)
    store_clock = StoreClock(1_000_000, clock)

    clock.advance(2.5)

    assert store_clock.now_us() == 3_500_000


_HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("instant_us", "due_us", "seconds"),
    [
        *((_HOUR_US + us, None, 1) for us in (1, 999_999, 1_000_000)),
        (_HOUR_US + 1_000_001, None, 2),
        *((due_us, None, 0) for due_us in (_HOUR_US, _HOUR_US - 1, 0, None)),
        # Of writers in another zone.
        (_HOUR_US, -5 * _HOUR_US, 0),
        (2 * _HOUR_US, -4 * _HOUR_US, 3_600),
    ],
)
def test_seconds_until_the_instant_of_a_due_are_rounded_up(
    instant_us: int | None, due_us: int | None, seconds: int
) -> None:
    assert StoreClock(_HOUR_US).seconds_until(due_at(instant_us, due_us)) == seconds


@given(st.lists(st.none() | microseconds), microseconds)
@example([10_000_000, 9_999_999, 10_000_001, None], 10_000_000)
def test_waits_are_the_seconds_until_each_message_that_is_not_due(
    instants_us: list[int | None], now_us: int
) -> None:
    stored = [due_at(us)._replace(key=str(number)) for number, us in enumerate(instants_us)]
    store_clock = StoreClock(now_us)

    waits = store_clock.waits(stored)

    seconds = {one.key: store_clock.seconds_until(one) for one in stored}
    assert waits == {key: wait for key, wait in seconds.items() if wait}


def test_lateness_is_rounded_down_to_milliseconds() -> None:
    late = [
        late_ms(due_at(us).instant_us, 10_000_000)
        for us in (9_998_001, 10_000_000, 10_000_001, None)
    ]

    assert late == [1, 0, -1, None]


@given(microseconds, microseconds, microseconds)
def test_wait_is_never_too_short_and_less_than_a_second_too_long(
    server_us: int, shift_us: int, due_us: int
) -> None:
    stored = due_at(due_us - shift_us, due_us=due_us)

    wait = StoreClock(server_us).seconds_until(stored)

    left_us = due_us - server_us - shift_us
    assert wait * 1_000_000 >= left_us
    assert wait == 0 or (wait - 1) * 1_000_000 < left_us


@given(
    st.integers(micros(datetime.min.replace(tzinfo=UTC)), micros(datetime.max.replace(tzinfo=UTC)))
)
def test_instants_are_exact_in_microseconds(microseconds: int) -> None:
    instant = instant_of(microseconds)

    assert instant - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(microseconds=microseconds)
    assert micros(instant) == microseconds
