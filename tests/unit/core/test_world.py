"""Time, chance and ids come from `World` alone, so that a test can decide them."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import duesweep
from duesweep.core.world import SettableClock, World

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


@pytest.mark.parametrize("package", ["sweep"])
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
    """The calls of what is banned, with their lines; annotations are no calls."""
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
