"""The files of SQL: nine topics a dialect, a name above each statement, no name twice."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import duesweep
from duesweep.sql import TOPICS, read_topic, split_statements, statement, statements

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(duesweep.__file__).parent / "sql"
DIALECTS = ("postgresql", "sqlserver")


def _names(dialect: str, topic: str) -> list[str]:
    return [name for name, _ in split_statements(read_topic(dialect, topic))]


every_dialect = pytest.mark.parametrize("dialect", DIALECTS)
every_topic = pytest.mark.parametrize("topic", TOPICS)


def test_names_and_texts_are_told_apart() -> None:
    text = "-- For readers.\n\n-- name: a\n-- Returns 1.\nSELECT 1;\n\n-- name: b_2\nSELECT\n\n2;\n"

    assert split_statements(text) == [
        ("a", "-- Returns 1.\nSELECT 1;\n"),
        ("b_2", "SELECT\n\n2;\n"),
    ]


def test_unknown_name_is_refused_with_its_dialect() -> None:
    with pytest.raises(LookupError, match='unknown statement "none" in sql/postgresql/'):
        statement("postgresql", "none")


@every_dialect
def test_folder_holds_one_file_a_topic(dialect: str) -> None:
    assert {path.name for path in (FOLDER / dialect).iterdir()} == {f"{t}.sql" for t in TOPICS}


@every_dialect
def test_no_name_stands_twice(dialect: str) -> None:
    counts = Counter(name for topic in TOPICS for name in _names(dialect, topic))

    assert [name for name, count in counts.items() if count > 1] == []


@every_dialect
@every_topic
def test_only_comments_stand_before_the_first_name(dialect: str, topic: str) -> None:
    head, *_ = read_topic(dialect, topic).split("-- name: ", 1)

    assert head.startswith("-- ")
    assert all(line.startswith("-- ") for line in head.splitlines() if line)


@every_dialect
def test_every_mark_of_a_name_begins_a_statement(dialect: str) -> None:
    for name, text in statements(dialect).items():
        assert not re.search("--[- ]*name", text, re.IGNORECASE), f"a mark within {name} is no name"


@every_topic
def test_dialects_have_a_statement_in_the_same_file_and_order(topic: str) -> None:
    postgresql, sqlserver = (_names(dialect, topic) for dialect in DIALECTS)
    both = set(statements("postgresql")) & set(statements("sqlserver"))

    assert [n for n in postgresql if n in both] == [n for n in sqlserver if n in both]


def test_statements_are_read_out_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from build_package import package  # noqa: PLC0415 - a script

    archive = tmp_path / "duesweep.zip"
    archive.write_bytes(package())

    # Isolated: the checkout is not on the path.
    code = f"import json, sys; sys.path.insert(0, {str(archive)!r}); " + (
        "from duesweep.sql import statements; "
        f"print(json.dumps([dict(statements(d)) for d in {DIALECTS!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert json.loads(ran.stdout) == [statements(dialect) for dialect in DIALECTS]
