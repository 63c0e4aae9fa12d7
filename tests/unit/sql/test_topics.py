"""The files of SQL: one a topic and dialect, a name above each statement, no name twice."""

import json
import re
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from duesweep.drivers import sql
from duesweep.drivers.sql import TOPICS, read_statements, read_topic, statement, statements
from support.sql_statements import ALL, DIALECTS, broken

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(sql.__file__).parent


def test_names_and_texts_are_told_apart() -> None:
    text = "-- For readers.\n\n-- name: a\n-- Returns 1.\nSELECT 1;\n\n-- name: b_2\nSELECT\n\n2;\n"

    assert read_statements(text) == {
        "a": "-- Returns 1.\nSELECT 1;\n",
        "b_2": "SELECT\n\n2;\n",
    }


def test_fragment_stands_in_each_statement_with_its_values_at_the_margin_of_its_line() -> None:
    fragments = """
-- fragment: lock
-- For readers.
BEGIN $1;
    $2
END;

-- fragment: old
(
  {due} < $1
)

-- fragment: one
1
"""
    statements = """
-- name: a
IF x
    {{lock: mine
        DELETE FROM t
        WHERE {{old: {now} }}
          AND {{old: {{one}} }};
    }}

-- name: b
SELECT {{old: 2}};
"""

    assert read_statements(statements, fragments) == {
        "a": """IF x
    BEGIN mine;
        DELETE FROM t
        WHERE (
          {due} < {now}
        )
          AND (
            {due} < 1
          );
    END;
""",
        "b": "SELECT (\n  {due} < 2\n);\n",
    }


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


def test_only_comments_stand_before_the_first_name() -> None:
    for dialect, topic in product(DIALECTS, TOPICS):
        head, *_ = re.split("-- (?:name|fragment): ", read_topic(dialect, topic), maxsplit=1)
        others = [line for line in head.splitlines() if line and not line.startswith("-- ")]
        assert head, f"sql/{dialect}/{topic}.sql does not say what it is about"
        assert not others, f"sql/{dialect}/{topic}.sql: {others}"


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


def test_statements_are_read_out_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from build_package import package  # noqa: PLC0415 - a script

    archive = tmp_path / "duesweep.zip"
    archive.write_bytes(package())

    # Isolated: the checkout is not on the path.
    code = f"import json, sys; sys.path.insert(0, {str(archive)!r}); " + (
        "from duesweep.drivers.sql import statements; "
        f"print(json.dumps([dict(statements(d)) for d in {DIALECTS!r}]))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert json.loads(ran.stdout) == [statements(dialect) for dialect in DIALECTS]
