"""Kinds of delayed table: small values that agree with themselves and with the configuration."""

from pathlib import Path

import pytest

from duesweep.config import load
from duesweep.drivers.statements import statement
from duesweep.stores.kinds import POSTGRESQL_KINDS, SQL_SERVER_KINDS, TableKind

DSNS = {"postgresql": "host=db.example dbname=s", "sqlserver": "Server=db.example;Database=s"}
KINDS: dict[tuple[str, str], TableKind] = {
    **{("postgresql", name): kind for name, kind in POSTGRESQL_KINDS.items()},
    **{("sqlserver", name): kind for name, kind in SQL_SERVER_KINDS.items()},
}


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


every_kind = pytest.mark.parametrize(("dialect", "name"), KINDS)


@every_kind
def test_columns_and_names_of_a_kind_agree(dialect: str, name: str) -> None:
    kind = KINDS[dialect, name]

    assert kind.due in kind.columns
    assert kind.names["due"].strip('["]') == kind.due
    assert kind.has_destination == ("Destination" in kind.columns)
    assert kind.has_destination == ("Destination" in kind.names["destination"])


@every_kind
def test_kinds_own_statements_are_there(dialect: str, name: str) -> None:
    kind = KINDS[dialect, name]

    assert statement(dialect, kind.store)
    assert kind.create is None or statement(dialect, kind.create)


@every_kind
@pytest.mark.usefixtures("_elsewhere")
def test_configuration_knows_where_the_endpoints_own_queue_is(dialect: str, name: str) -> None:
    settings = {"kind": name, "dsn": DSNS[dialect], "endpoint": "Sales.Orders"}
    given = [f"store.{setting}={value}" for setting, value in settings.items()]

    config = load(None, [*given, "ledger.root=/ledger"])

    assert config.store.dialect == dialect
    assert config.store.knows_own_queue == KINDS[dialect, name].has_own_queue
