"""Whose fault an error of SQL Server's is."""

import pytest

from duesweep.core.errors import (
    ConfigError,
    DestinationError,
    DuesweepError,
    OdbcDriverError,
    RefusedMessageError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
)
from duesweep.drivers.sqlserver.dsn import odbc
from duesweep.drivers.sqlserver.errors import (
    connect_errors,
    destination_errors,
    map_errors,
    unusual_errors,
)
from duesweep.drivers.statements import describe_statement, statement

pytestmark = pytest.mark.usefixtures("odbc")


def _error(state: str, number: int, text: str = "Something happened.") -> Exception:
    words = f"[{state}] [Microsoft][ODBC Driver 18 for SQL Server][SQL Server]{text} ({number})"
    return odbc().Error(state, f"{words} (SQLExecDirectW)")


def _destination(state: str, number: int, text: str = "Something.") -> DuesweepError:
    with pytest.raises(DuesweepError) as caught, destination_errors("Billing@[dbo]@[nsb]"):
        raise _error(state, number, text)
    return caught.value


@pytest.mark.parametrize(
    ("state", "number"),
    [
        ("23000", 2627),
        ("23000", 547),
        ("23000", 515),
        ("22001", 2628),
        ("22001", 8152),
        ("42000", 50_000),
        ("42000", 51_234),
    ],
)
def test_row_at_fault_is_refused(state: str, number: int) -> None:
    error = _destination(state, number)

    assert type(error) is RefusedMessageError
    assert str(error) == f"Queue table Billing@[dbo]@[nsb]: Something. ({number})"


@pytest.mark.parametrize(
    ("state", "number", "advice"),
    [
        ("42000", 229, "grant SELECT and INSERT"),
        ("42000", 1222, "another session holds a lock"),
        ("42S02", 208, "is gone"),
        ("HYT00", 0, "took too long"),
        ("42000", 3609, "a trigger on it rolls the transaction back"),
        ("42000", 12345, "look at its triggers"),
        ("22018", 206, "a column has another type"),
        ("08004", 911, "its database is not there"),
        ("08004", 916, "map the sweeper's login"),
        ("42000", 3906, "connect to the primary replica"),
    ],
)
def test_table_at_fault_takes_nothing_now(state: str, number: int, advice: str) -> None:
    error = _destination(state, number)

    assert type(error) is DestinationError
    assert advice in str(error)


def test_used_up_identity_is_the_tables_fault_though_it_looks_like_the_rows() -> None:
    text = "Arithmetic overflow error converting IDENTITY to data type int."

    assert type(_destination("22003", 8115, text)) is DestinationError


def test_row_with_the_word_identity_is_at_fault_itself() -> None:
    text = "Violation of PRIMARY KEY constraint 'PK_IDENTITY_Billing'."

    assert type(_destination("23000", 2627, text)) is RefusedMessageError


@pytest.mark.parametrize("number", [3906, 921, 942, 955])
def test_database_of_a_queue_that_is_out_of_order_is_tried_again(number: int) -> None:
    error = _destination("HY000", number)

    assert type(error) is DestinationError
    assert error.transient


@pytest.mark.parametrize(
    ("state", "number"), [("08S01", 0), ("42000", 9002), ("42000", 40613), ("HY000", 596)]
)
def test_fault_of_a_service_costs_no_message_an_attempt(state: str, number: int) -> None:
    error = _destination(state, number)

    assert type(error) is StoreError
    assert error.transient


# As SqlClient does by default, without time-outs of its own and deadlocks:
# SqlConfigurableRetryFactory.BaselineTransientErrors.
_TRIED_AGAIN_BY_MICROSOFT = (
    *(1204, 1222, 49918, 49919, 49920, 4060, 4221, 40143, 40613, 40501, 40540, 40197),
    *(42108, 42109, 10929, 10928, 10060),
)


@pytest.mark.parametrize("number", _TRIED_AGAIN_BY_MICROSOFT)
def test_error_that_microsofts_client_tries_again_passes(number: int) -> None:
    with pytest.raises(StoreError) as caught, map_errors():
        raise _error("HY000", number)
    assert caught.value.transient


@pytest.mark.parametrize("number", [1205, 3960])
def test_victim_of_a_deadlock_has_lost_its_transaction(number: int) -> None:
    assert type(_destination("40001", number)) is TransactionLostError
    with pytest.raises(TransactionLostError), map_errors():
        raise _error("40001", number)


@pytest.mark.parametrize(
    ("state", "number", "expected"),
    [
        # a constraint, a hint that cannot be followed, a lock, a time-out
        ("23000", 547, UnusualBatchError),
        ("42000", 8622, UnusualBatchError),
        ("42000", 1222, UnusualBatchError),
        ("HYT00", 0, UnusualBatchError),
        ("40001", 1205, TransactionLostError),
        ("42000", 9002, StoreError),
        ("08S01", 0, StoreError),
    ],
)
def test_error_makes_a_batch_unusual_unless_it_is_the_services(
    state: str, number: int, expected: type[DuesweepError]
) -> None:
    with pytest.raises(DuesweepError) as caught, unusual_errors(), map_errors():
        raise _error(state, number)

    assert type(caught.value) is expected


@pytest.mark.parametrize(
    ("state", "number", "transient"),
    [
        ("08S01", 0, True),
        ("42000", 1222, True),
        ("HYT00", 0, True),
        ("42S02", 208, False),
        ("08004", 916, False),
        ("HY000", 596, True),
        ("HY000", 40549, True),
        ("42000", 3906, True),
        ("HY000", 952, True),
    ],
)
def test_error_of_a_statement_says_whether_it_passes(
    state: str, number: int, *, transient: bool
) -> None:
    with pytest.raises(StoreError) as caught, map_errors():
        raise _error(state, number)
    assert caught.value.transient is transient


@pytest.mark.parametrize(
    ("state", "number", "text", "kind"),
    [
        ("28000", 18456, "Login failed for user 'x'.", ConfigError),
        ("42000", 4060, "Cannot open database.", StoreError),
        ("HY000", 927, "Database is in the middle of a restore.", StoreError),
        ("42000", 911, "Database does not exist.", ConfigError),
        ("01000", 0, "Can't open lib 'x' : file not found", OdbcDriverError),
        ("IM002", 0, "Data source name not found", OdbcDriverError),
        ("08001", 0, "SSL Provider: certificate verify failed", ConfigError),
        ("HYT00", 0, "Login timeout expired", StoreError),
        ("08001", 0, "TCP Provider: Error code 0x2749", StoreError),
        ("42000", 40613, "Database is not currently available", StoreError),
        ("28000", 18456, "Fehler bei der Anmeldung für den Benutzer 'x'.", ConfigError),
        ("28000", 0, "Invalid authorization specification", ConfigError),
        ("28000", 18401, "Server is in script upgrade mode", StoreError),
        ("28000", 18461, "Login failed. Reason: Server is in single user mode.", StoreError),
        ("28000", 18458, "Die maximale Anzahl gleichzeitiger Benutzer ist erreicht.", StoreError),
    ],
)
def test_session_that_is_not_had_is_a_settings_fault_or_the_servers(
    state: str, number: int, text: str, kind: type[DuesweepError]
) -> None:
    with pytest.raises(kind) as caught, connect_errors("db.example/nsb"):
        raise _error(state, number, text)
    assert type(caught.value) is kind


@pytest.mark.parametrize(("state", "number"), [("42000", 1222), ("40001", 1205), ("HYT00", 0)])
def test_lock_or_time_out_says_which_statement_waited_and_for_what(state: str, number: int) -> None:
    names = {"sweeps": "[nsb].[dbo].[duesweep_sweeps]", "journal": "[a].[b].[c]"}
    what = describe_statement("fence", statement("sqlserver", "fence"), names)

    with pytest.raises(StoreError) as caught, map_errors(lambda: what):
        raise _error(state, number, "Lock request time out period exceeded.")

    text = str(caught.value)
    assert text.startswith("Statement fence on [nsb].[dbo].[duesweep_sweeps]: Lock request")
    assert ("another session holds a lock there" in text) == (number == 1222)


def test_error_that_names_what_it_is_about_is_left_as_it_is() -> None:
    with (
        pytest.raises(StoreError) as caught,
        map_errors(lambda: "fence on [nsb].[dbo].[duesweep_sweeps]"),
    ):
        raise _error("42S02", 208, "Invalid object name 'x'.")

    assert str(caught.value) == "Invalid object name 'x'. (208)"
