"""The files of SQL: one a topic and dialect, a name above each statement, no name twice."""

import re
from collections import Counter
from pathlib import Path

import pytest

from duesweep.drivers.statements import TOPICS, read_statements, read_topic, statement
from support.sql_statements import ALL, DIALECTS, broken

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "lib" / "duesweep" / "drivers" / "sql"


@pytest.mark.parametrize("use", ["{{old}}", "{{old: 1; 2}}", "{{old: 1\n  2\n}}"])
def test_fragment_with_other_values_than_it_takes_is_refused(use: str) -> None:
    with pytest.raises(ValueError, match="fragment old takes 1 texts"):
        read_statements(f"-- fragment: old\n$1 < $1\n\n-- name: a\n{use}\n")


def test_every_fragment_is_used_by_several_statements_or_fragments() -> None:
    for dialect in DIALECTS:
        text = "".join(read_topic(dialect, topic) for topic in TOPICS)
        for name in re.findall(r"^-- fragment: (\w+)$", text, re.MULTILINE):
            assert len(re.findall(rf"\{{\{{{name}\b", text)) > 1, f"{dialect}: {name}"


def test_no_mark_of_a_fragment_is_left_in_a_statement() -> None:
    assert broken(lambda each: re.findall(r"\{\{|\}\}|\$\d|fragment", each.text)) == []


def test_unknown_name_is_refused_with_its_dialect() -> None:
    with pytest.raises(LookupError, match='unknown statement "none" in sql/postgresql/'):
        statement("postgresql", "none")


def test_folder_holds_one_file_a_topic() -> None:
    for dialect in DIALECTS:
        assert {path.stem for path in (FOLDER / dialect).iterdir()} == set(TOPICS)


def test_no_name_stands_twice() -> None:
    counts = Counter((each.dialect, each.name) for each in ALL)

    assert [name for name, count in counts.items() if count > 1] == []


def test_dialects_have_a_statement_in_the_same_file_and_order() -> None:
    places = {
        dialect: [(each.topic, each.name) for each in ALL if each.dialect == dialect]
        for dialect in DIALECTS
    }
    both = {name for _, name in places["postgresql"]} & {name for _, name in places["sqlserver"]}
    postgresql, sqlserver = (
        [place for place in places[dialect] if place[1] in both] for dialect in DIALECTS
    )

    assert postgresql == sqlserver
