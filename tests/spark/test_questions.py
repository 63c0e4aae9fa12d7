"""The questions to a ledger, asked with hostile values: both writers give the same answers, and the
ones that a few lines of Python give.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duesweep.core.message import ENCLOSED_MESSAGE_TYPES
from duesweep.core.world import micros
from duesweep.ledger.base import ENCLOSED_TYPES, Among, Asked, Between, Condition, Named, questions
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.ledger.rows import SCHEMAS
from duesweep.ledger.spark import SparkTables
from support.ledger_reader import piece_of

_START = datetime(2026, 11, 23, 9, tzinfo=UTC)
_SOURCE = "o'r{most}d\\e\"rs%"
# Texts that would become SQL, a value or an escape, if they were not quoted.
_KEYS = [
    "a",
    "it's",
    "\\",
    "\\'",
    "{hidden}",
    "{{x}}",
    "$1",
    ":most",
    "x\n-- y",
]
_TEXTS = [*_KEYS, "", "\u2028ü", None]
# Values of columns, and of all others by their types.
_SOME: Mapping[str, Sequence[Any]] = {
    "source": [_SOURCE, _SOURCE, _SOURCE, "other"],
    "outcome": ["dispatched", "deferred", "exhausted", "cancelled", "'odd'", None],
    "change": ["replayed", "discarded", "cancelled", "restored", "rescheduled"],
    **dict.fromkeys(("sweep_id", "of"), _TEXTS[:6]),
}
_OF_KINDS: Mapping[str, Sequence[Any]] = {
    "string": _TEXTS,
    "map": [None, {}, *({ENCLOSED_MESSAGE_TYPES: text} for text in _TEXTS)],
    "binary": [b"\xff"],
    "double": [None, 0.5, 100.0],
    "int32": [None, 1, 1, 1, 2, 3],
    "int64": [None, 1, 1, 2, 900, 70_000, 2**40],
}

_Row = dict[str, Any]


def _any_rows(rng: random.Random) -> Mapping[str, Sequence[_Row]]:
    """Rows of all tables, whose ids are often the same. No two have the same instant."""
    seconds = iter(rng.sample(range(100_000), 600))

    def instant(column: str) -> datetime:
        is_due = column in {"due", "due_before", "due_after"}
        return _START + timedelta(seconds=rng.randrange(2) if is_due else next(seconds))

    def value(name: str, column: str) -> Any:
        if column in _SOME:
            return rng.choice(_SOME[column])
        kind = str(SCHEMAS[name].field(column).type).partition("[")[0].partition("<")[0]
        return instant(column) if kind == "timestamp" else rng.choice(_OF_KINDS[kind])

    counts = {"tombstones": 60, "errors": 40, "retries": 20, "sweeps": 12, "changes": 60}
    return {
        name: [
            {column: value(name, column) for column in SCHEMAS[name].names} for _ in range(count)
        ]
        for name, count in counts.items()
    }


_OF_SOURCE = Among("source", [_SOURCE])
_LATER = Between("last_failed_at", _START + timedelta(seconds=20_000))


def _questions(keys: Sequence[str]) -> Iterator[tuple[str, Asked, dict[str, Any]]]:
    """Each question, often with more conditions."""
    mine: list[Condition] = [_OF_SOURCE]
    known: Asked = dict.fromkeys(SCHEMAS, mine)

    def of(*names: str, **more: Sequence[Condition]) -> Asked:
        return {name: [*known[name], *more.get(name, ())] for name in names}

    both = ("errors", "changes")
    fate = Among("change", ["replayed", "discarded"])
    types = Among(ENCLOSED_TYPES, [None, *keys])
    for hidden in ("", "discarded"):
        yield "count_errors", of(*both, changes=[fate]), {"hidden": hidden}
        some = of(*both, changes=[fate], errors=[_LATER, types])
        yield "count_errors", some, {"hidden": hidden}
        yield "last_errors", some, {"hidden": hidden, "most": 5}
    named = of(*both, changes=[fate], errors=[Named(keys)])
    yield "last_errors", named, {"hidden": "", "most": 100}
    none = of(*both, errors=[Among("destination", [])])
    yield "last_errors", none, {"hidden": "", "most": 100}
    yield "find_errors", of(*both, changes=[fate]), {"hidden": "replayed"}
    yield "find_destinations", of("errors"), {}
    yield "find_copies", of("tombstones", tombstones=[Among("sweep_id", keys)]), {}
    yield "count_failing", of("retries"), {}
    for again in (0, 1):
        yield "find_cancelled", of("changes"), {"again": again, "command": ""}
        yield "find_cancelled", of("changes"), {"again": again, "command": keys[again]}
    every = ("sweeps", "tombstones", "errors", "changes")
    yield "count_by_sweep", of(*every, changes=[Among("change", ["cancelled"])]), {}
    yield "find_alike", of("tombstones"), {}
    some_keys = [Among("message_key", [*keys, None])]
    of_keys = of("tombstones", "changes", tombstones=some_keys, changes=some_keys)
    yield "count_final_tombstones", of_keys, {}
    yield "find_doubled_errors", of("errors"), {}
    yield "last_sweeps", of("sweeps"), {"most": 4}
    yield "sum_sweeps", of("sweeps"), {"most": 80_000}
    yield "sum_by_step", of("sweeps"), {"first": micros(_START), "length": 3_600_000_000}
    yield "count_lost_errors", of("sweeps", "errors"), {}
    yield "count_lateness", of("tombstones"), {"most": 1_000, "late": 900}
    yield "count_by_destination", of("tombstones", "retries", retries=[_LATER]), {}
    keyed = {name: [Among("message_key", keys)] for name in ("tombstones", *both)}
    yield "find_events", of("tombstones", "retries", "errors", "changes", **keyed), {}
    yield "last_gap", of("sweeps"), {"wanted": micros(_START), "margin": 1_000_000}
    yield "last_rates", of("sweeps"), {"least": 2, "most": 3}


def _sorted(rows: Iterator[_Row] | Sequence[_Row]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((name, repr(value)) for name, value in row.items()) for row in rows)


def test_missing_tables_have_no_rows_for_both_writers(spark: SparkSession, tmp_path: Path) -> None:
    rows = _any_rows(random.Random(3))
    for name in ("errors", "sweeps", "tombstones"):
        alone = DeltaRsTables(str(tmp_path / name))
        alone.create(name, {})
        alone.write([piece_of(name, *rows[name])])

    for question, tables, values in _questions(_KEYS):
        first = next(iter(tables))
        if len(tables) > 1:
            alone = DeltaRsTables(str(tmp_path / first))
            by_spark = SparkTables(spark, alone.root)
            found = [_sorted(each.ask(question, tables, **values)) for each in (alone, by_spark)]
            assert found[0] == found[1], (question, tables, values)
    (lost,) = DeltaRsTables(str(tmp_path / "sweeps")).ask(
        "count_lost_errors", {"sweeps": [], "errors": []}
    )
    assert lost["lost"] == sum(row["exhausted"] or 0 for row in rows["sweeps"])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_both_writers_answer_each_question_alike_whatever_the_values(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    rows = _any_rows(random.Random(seed))
    by_delta_rs = DeltaRsTables(str(tmp_path / "ledger"))
    for name, some in rows.items():
        by_delta_rs.create(name, {})
        by_delta_rs.write([piece_of(name, *some)])
    by_spark = SparkTables(spark, by_delta_rs.root)
    asked = set()

    for question, tables, values in _questions(_KEYS[seed::2]):
        found = [_sorted(each.ask(question, tables, **values)) for each in (by_delta_rs, by_spark)]
        assert found[0] == found[1], (question, tables, values)
        asked.add(question)

    assert asked == {*questions()}
    mine = {name: [row for row in some if row["source"] == _SOURCE] for name, some in rows.items()}
    _assert_final_tombstones(by_delta_rs, mine)
    _assert_numbers(by_delta_rs, mine)


def _assert_final_tombstones(tables: DeltaRsTables, mine: Mapping[str, Sequence[_Row]]) -> None:
    again = Counter(
        (row["message_key"], row["of"])
        for row in mine["changes"]
        if row["new_key"] == row["message_key"] is not None
    )
    left: defaultdict[str, list[_Row]] = defaultdict(list)
    for row in sorted(mine["tombstones"], key=lambda row: row["dispatched_at"]):
        undone = row["message_key"], row["sweep_id"]
        if again[undone] and row["sweep_id"] is not None:
            again[undone] -= 1
        else:
            left[row["message_key"]].append(row)
    more: Counter[str] = Counter()
    for (key, _), times in again.items():
        more[key] += times
    final = [row for key, rows in left.items() for row in rows[more[key] :]]
    expected = Counter((row["message_key"], row["message_id"], row["due"]) for row in final)

    of_mine: Asked = {name: [_OF_SOURCE] for name in ("tombstones", "changes")}
    found = {
        (row["message_key"], row["message_id"], row["due"]): row["tombstones"]
        for row in tables.ask("count_final_tombstones", of_mine)
    }
    assert found == expected


def _assert_numbers(tables: DeltaRsTables, mine: Mapping[str, Sequence[_Row]]) -> None:
    late = [row["lateness_ms"] for row in mine["tombstones"] if row["attempts"] == 1]
    of_mine: Asked = {name: [_OF_SOURCE] for name in SCHEMAS}
    only: Asked = {"tombstones": of_mine["tombstones"]}

    steps = [*tables.ask("count_lateness", only, most=1_000, late=900)]
    assert sum(row["messages"] for row in steps) == len(mine["tombstones"])
    assert sum(row["late"] for row in steps) == sum((ms or 0) > 900 for ms in late)

    every = ("sweeps", "tombstones", "errors", "changes")
    counted = [*tables.ask("count_by_sweep", {name: of_mine[name] for name in every})]
    assert sum(row["sweeps"] for row in counted) == len(mine["sweeps"])
    assert sum(row["error_rows"] for row in counted) == len(mine["errors"])
    outcomes = Counter(row["outcome"] for row in mine["tombstones"])
    assert sum(row["cancelled_rows"] for row in counted) == outcomes["cancelled"]
    assert sum(row["other_rows"] for row in counted) == outcomes["'odd'"] + outcomes[None]
    assert len({row["sweep_id"] for row in counted}) == len(counted)
