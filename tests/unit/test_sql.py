"""The files of SQL: each says what it does, is used, and takes only what is known."""

import re
from pathlib import Path

import pytest

import duesweep
from duesweep.sql import statement

PACKAGE = Path(duesweep.__file__).parent
NAMES = sorted(path.stem for path in (PACKAGE / "sql" / "postgresql").glob("*.sql"))
READING = [name for name in NAMES if statement("postgresql", name).startswith("-- Returns")]
# Spark puts these into a query of its own, and can bind no values.
FOR_JDBC = [name for name in NAMES if re.search("[Ff]or JDBC", statement("postgresql", name))]
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))

TABLES = {"attempts", "bindings", "delayed", "index", "journal", "queue", "sweeps"}
LITERALS = {"bounds", "horizon", "source", "sweep_id"}

every_statement = pytest.mark.parametrize("name", NAMES)


def _comment(name: str) -> str:
    return "\n".join(re.findall("^ *--(.*)", statement("postgresql", name), re.MULTILINE))


def _code(name: str) -> str:
    return re.sub("--.*", "", statement("postgresql", name)).strip()


def test_there_are_statements() -> None:
    assert {"claim", "remove", "raise_attempts", "journal_batch", "seal"} <= set(NAMES)
    assert set(FOR_JDBC) == {"plan_tickets", "read_exhausted", "read_retries"}


@every_statement
def test_first_line_says_what_the_statement_does(name: str) -> None:
    assert re.match(r"-- [A-Z][a-z]+s .{10,}\n", statement("postgresql", name))


@pytest.mark.parametrize("name", [name for name in READING if "FROM {" in _code(name)])
def test_statement_that_reads_tables_says_how_it_locks(name: str) -> None:
    assert re.search("lock|holds", _comment(name))


@every_statement
def test_statement_is_named_somewhere_in_the_package(name: str) -> None:
    assert f'"{name}"' in SOURCES


@every_statement
def test_only_known_names_and_literals_are_put_into_the_text(name: str) -> None:
    text = statement("postgresql", name)
    placeholders = re.findall(r"\{(\w+)\}", text)

    assert set(placeholders) <= TABLES | (LITERALS if name in FOR_JDBC else set())
    assert text.count("{") == text.count("}") == len(placeholders)


@every_statement
def test_values_are_bound_by_name_or_there_are_none(name: str) -> None:
    text = statement("postgresql", name)
    if name in FOR_JDBC or name.startswith("create_"):
        assert "%" not in text
    else:
        assert "%" not in re.sub(r"%\([a-z_]+\)s|%%", "", text)


@every_statement
def test_file_holds_one_statement_or_a_subquery(name: str) -> None:
    code = _code(name)
    if name in FOR_JDBC:
        assert ";" not in code
    elif not name.startswith("create_"):
        assert code.index(";") == len(code) - 1
