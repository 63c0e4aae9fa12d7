"""Kinds of delayed table agree with themselves and with the configuration, and the statements that
create tables with the values that are expected of tables.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from duesweep.config import load
from duesweep.drivers.statements import own_tables, statement
from duesweep.queues import postgresql as postgresql_queues
from duesweep.queues import sqlserver as sqlserver_queues
from duesweep.stores.dialect import JOURNAL_TABLES
from duesweep.stores.kinds import POSTGRESQL_KINDS, SQL_SERVER_KINDS, TableKind

READ = {"postgresql": "postgres", "sqlserver": "tsql"}
JOURNALS = {
    dialect: {name: table.columns for name, table in own_tables(dialect).items()}
    for dialect in READ
}
KINDS: dict[str, Mapping[str, TableKind]] = {
    "postgresql": POSTGRESQL_KINDS,
    "sqlserver": SQL_SERVER_KINDS,
}
QUEUES = {"postgresql": postgresql_queues.COLUMNS, "sqlserver": sqlserver_queues.COLUMNS}
# A serial is an integer with a sequence.
SERIAL = {"serial": "integer"}
CREATED_KINDS = [
    (dialect, name) for dialect in KINDS for name, kind in KINDS[dialect].items() if kind.create
]

every_dialect = pytest.mark.parametrize("dialect", READ)


def _type(dialect: str, text: str) -> str:
    """A type in one spelling, without its length."""
    built = exp.DataType.build(SERIAL.get(text, text), dialect=READ[dialect])
    if not built.is_type(exp.DataType.Type.ARRAY):
        built.set("expressions", [])
    return built.sql(READ[dialect])


def _parsed(dialect: str, name: str, beginning: str) -> Iterator[exp.Expression]:
    """The parts of a statement that begin so. Each is cut out, since sqlglot does not read the text
    within BEGIN TRY.
    """
    text = re.sub("--.*", "", statement(dialect, name))
    tables = (*JOURNAL_TABLES, "delayed", "queue", "index")
    names = {table: table for table in tables}
    kinds = ("literal", "schema", "lock", "local")
    names |= {f"{table}_{kind}": table for table in tables for kind in kinds} | {
        "first_format": "1",
        "format": "2",
    }
    for part in text.format(**names).split(beginning)[1:]:
        yield sqlglot.parse_one(beginning + part.split(";")[0], read=READ[dialect])


def _columns(dialect: str, found: exp.Expression) -> dict[str, str]:
    return {
        column.name: _type(dialect, column.args["kind"].sql(READ[dialect]).lower())
        for column in found.find_all(exp.ColumnDef)
    }


def _created(dialect: str, name: str) -> dict[str, dict[str, str]]:
    """The columns of each table that a statement creates, and their types."""
    return {
        next(create.find_all(exp.Table)).name: _columns(dialect, create)
        for create in _parsed(dialect, name, "CREATE TABLE")
    }


def _expected(dialect: str, columns: Mapping[str, str]) -> dict[str, str]:
    return {name: _type(dialect, kind) for name, kind in columns.items()}


@every_dialect
def test_setup_creates_the_journals_tables_with_the_columns_that_are_expected(
    dialect: str,
) -> None:
    journal = JOURNALS[dialect]

    assert _created(dialect, "create_journal") == {
        name: _expected(dialect, columns) for name, columns in journal.items()
    }
    assert set(journal) == set(JOURNAL_TABLES)


@pytest.mark.parametrize(("dialect", "name"), CREATED_KINDS)
def test_setup_creates_a_delayed_table_with_the_columns_of_its_kind(
    dialect: str, name: str
) -> None:
    kind = KINDS[dialect][name]
    assert kind.create is not None

    assert _created(dialect, kind.create) == {"delayed": _expected(dialect, kind.columns)}


@every_dialect
def test_setup_creates_a_queue_with_columns_that_make_it_one(dialect: str) -> None:
    expected = QUEUES[dialect]

    found = _created(dialect, "create_queue")["queue"]

    assert found.keys() >= expected.keys()
    for name, kinds in expected.items():
        assert not kinds or found[name] in {_type(dialect, kind) for kind in kinds}


DSNS = {"postgresql": "host=db.example dbname=s", "sqlserver": "Server=db.example;Database=s"}
EACH_KIND = {(dialect, name): kind for dialect in KINDS for name, kind in KINDS[dialect].items()}


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


every_kind = pytest.mark.parametrize(("dialect", "name"), EACH_KIND)


@every_kind
def test_columns_and_names_of_a_kind_agree(dialect: str, name: str) -> None:
    kind = EACH_KIND[dialect, name]

    assert kind.due in kind.columns
    assert kind.names["due"].strip('["]') == kind.due
    assert kind.has_destination == ("Destination" in kind.columns)
    assert kind.has_destination == ("Destination" in kind.names["destination"])


@every_kind
def test_kinds_own_statements_are_there(dialect: str, name: str) -> None:
    kind = EACH_KIND[dialect, name]

    assert statement(dialect, kind.store)
    assert kind.create is None or statement(dialect, kind.create)


@every_kind
@pytest.mark.usefixtures("_elsewhere")
def test_configuration_knows_where_the_endpoints_own_queue_is(dialect: str, name: str) -> None:
    settings = {"kind": name, "dsn": DSNS[dialect], "endpoint": "Sales.Orders"}
    given = [f"store.{setting}={value}" for setting, value in settings.items()]

    config = load(None, [*given, "ledger.root=/ledger"])

    assert config.store.dialect == dialect
    assert config.store.knows_own_queue == EACH_KIND[dialect, name].has_own_queue
