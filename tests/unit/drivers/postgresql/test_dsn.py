"""What a dsn means, and the errors for a wrong one. Connects to nothing."""

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.policy import DEFAULT_TIMEOUTS
from duesweep.drivers.postgresql.session import connect, database_of, literal
from duesweep.stores.base import JdbcSource


@pytest.fixture(autouse=True)
def _no_libpq_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGDATABASE", "PGSERVICE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("dsn", "database"),
    [
        ("postgresql://sweeper@db.example:5432/sales", "sales"),
        ("postgresql://sweeper@db.example/with%20space", "with space"),
        ("host=db.example dbname='my db' user=sweeper", "my db"),
        ("postgresql://sweeper@db.example", "sweeper"),
    ],
)
def test_database_is_the_one_that_libpq_would_take(dsn: str, database: str) -> None:
    assert database_of(dsn) == database


def test_database_of_the_environment_is_taken_where_the_dsn_names_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGDATABASE", "sales")

    assert database_of("postgresql://sweeper@db.example") == "sales"


@pytest.mark.parametrize(
    "dsn",
    [
        pytest.param("postgres//sweeper:s3cret@db.example/sales", id="no colon after the scheme"),
        pytest.param("postgresql://sweeper:s3cret%zz@db.example/sales", id="a bare percent sign"),
        pytest.param("postgresql://sweeper:s3cret@db.example/sales?x=y", id="an unknown parameter"),
        pytest.param("host=db.example password='s3cret", id="a quote that is not closed"),
        pytest.param("host=db.example password=top s3cret", id="a blank in the password"),
        pytest.param("host=db.example passwort=s3cret", id="a misspelt keyword"),
    ],
)
def test_dsn_that_cannot_be_read_is_refused_without_its_password(dsn: str) -> None:
    for use in (database_of, lambda dsn: connect(dsn, DEFAULT_TIMEOUTS.task)):
        with pytest.raises(ConfigError) as refusal:
            use(dsn)
        assert "dsn" in str(refusal.value)
        assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "'a'"), ("it's", "'it''s'"), ("a\\b", " E'a\\\\b'"), ("%s", "'%s'")],
)
def test_literal_is_quoted(value: str, text: str) -> None:
    assert literal(value).strip() == text.strip()


def test_jdbc_source_keeps_its_password_out_of_its_repr() -> None:
    source = JdbcSource("jdbc:postgresql://db.example/sales", {"password": "s3cret"})

    assert "s3cret" not in repr(source) + str(source)
