"""Finds out whose fault an SQL Server error is, by its number (error_numbers.py), else by its
SQLSTATE.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duesweep.core.errors import (
    NO_DESCRIPTORS,
    ConfigError,
    DestinationError,
    MissingRightError,
    OdbcDriverError,
    Problem,
    RefusedMessageError,
    StoreError,
    TransactionLostError,
    UnusualBatchError,
    lacks_descriptors,
    make_storable,
)
from duesweep.drivers.sqlserver.dsn import INSTALL, odbc
from duesweep.drivers.sqlserver.error_numbers import FAULTS, Fault

if TYPE_CHECKING:
    import pyodbc

_FIRST_RAISED_BY_USERS = 50_000
_LOCK_TIMED_OUT, _CANNOT_OPEN = 1222, 4060
# Texts to add to the server's when an insert failed.
_QUEUE_FAULTS = {
    1222: Problem(
        "; another session holds a lock on it", "look for ALTER, TRUNCATE or an index rebuild"
    ),
    229: Problem("", "grant SELECT and INSERT on it to the sweeper's user"),
    230: Problem("", "grant SELECT and INSERT on it to the sweeper's user"),
    33504: Problem("", "let its security policy accept the sweeper's rows"),
    206: Problem("; a column has another type", "compare its columns with `duesweep doctor`"),
    911: Problem("; its database is not there", "correct the database in the queue's address"),
    916: Problem("", "map the sweeper's login to a user of its database"),
    3906: Problem("; its database is read-only", "connect to the primary replica"),
    208: Problem("; the table, or one that its triggers write to, is gone"),
    3609: Problem(
        "; a trigger on it rolls the transaction back", "let the trigger only raise an error"
    ),
    3616: Problem("; a trigger on it fails and rolls the transaction back"),
}
_MISSING_ON_OBJECT = re.compile(
    r"The (?P<right>\w+) permission was denied on .*?object '(?P<object>[^']*)', "
    r"database '(?P<database>[^']*)', schema '(?P<schema>[^']*)'"
)
_MISSING_IN_DATABASE = re.compile(
    r"(?P<right>[A-Z ]+) permission (?:was )?denied in database '(?P<database>[^']*)'"
)
_TIMED_OUT = "HYT00"
# A counter of the table is used up; the server gives it the number of a value that does not fit.
_USED_UP = re.compile(r"\bconverting IDENTITY to\b")
_LOCKED = Problem(
    "; another session holds a lock there", "look for ALTER, TRUNCATE or an index rebuild"
)
_NUMBER = re.compile(r"\((\d+)\) \(SQL\w+\)")
_NOISE = re.compile(r"\[(?:\w{5}|Microsoft|ODBC Driver[^]]*|SQL Server)\]\s*")
# Babelfish reports many errors with this number; only the text tells them apart.
_STAND_IN = 33557097


@contextmanager
def map_errors(describe: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Turn pyodbc's errors into `StoreError`s, or `TransactionLostError` where a retry may help.

    `describe` describes the statement: the server's texts about locks and time-outs name no table.
    """
    try:
        yield
    except odbc().Error as error:
        told = _describe(error, describe())
        fault = _fault_of(error)
        if fault is Fault.TRANSACTION:
            raise TransactionLostError.of(told) from error
        if fault is Fault.RIGHT:
            raise MissingRightError(told.text, advice=_grant_of(told.text)) from error
        raise StoreError.of(told, transient=_is_passing(error)) from error


@contextmanager
def destination_errors(table: object) -> Iterator[None]:
    """Turn the errors of an insert into `table` into errors of a message, the destination or the
    service.
    """
    try:
        yield
    except odbc().Error as error:
        raise _destination_error(f"Queue table {table}: {sentence(error)}", error) from error


@contextmanager
def row_errors() -> Iterator[None]:
    """Turn the errors of statements that store a row into errors of its message, where it is at
    fault.
    """
    try:
        yield
    except StoreError as error:
        cause = error.__cause__
        if isinstance(cause, odbc().Error) and _fault_of(cause) is Fault.ROW:
            raise RefusedMessageError(error.text) from error
        raise


@contextmanager
def unusual_errors() -> Iterator[None]:
    """Turn the errors of statements into `UnusualBatchError`, except errors of the service."""
    try:
        yield
    except TransactionLostError:
        raise
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, odbc().Error) or _fault_of(cause) is Fault.SERVICE:
            raise
        raise UnusualBatchError(error.text) from error


@contextmanager
def connect_errors(server: str, *, has_password: bool = True) -> Iterator[None]:
    """Turn the errors of opening a session into `ConfigError` or `StoreError`."""
    try:
        yield
    except (odbc().Error, OSError) as error:
        if lacks_descriptors(error):
            raise StoreError(
                f"Cannot connect to SQL Server at {server}: {NO_DESCRIPTORS.text}",
                transient=True,
                advice=NO_DESCRIPTORS.advice,
            ) from error
        if isinstance(error, OSError):
            raise
        text, fault = sentence(error), _fault_of(error)
        if "Can't open lib" in text or _state(error) in {"IM002", "IM003", "IM004"}:
            raise OdbcDriverError(
                f"The ODBC driver that the dsn names cannot be loaded: {text}",
                advice=f"{INSTALL}; or remove Driver= to use the driver that came with duesweep",
            ) from error
        if fault is Fault.LOGIN or (_state(error) == "28000" and number_of(error) is None):
            advice = "check user, password and database in the dsn"
            if not has_password:
                advice = (
                    "put the password into the dsn in the environment: DUESWEEP_STORE__DSN=...;"
                    "Pwd=..., or DUESWEEP_QUEUES__<NAME>__DSN for queues with a dsn of their own"
                )
            raise ConfigError(
                f"SQL Server at {server} rejected the login: {text}", advice=advice
            ) from error
        if "certificate" in text.lower():
            raise ConfigError(
                f"{server} has a certificate that is not trusted: {text}",
                advice=(
                    "install the certificate of its authority, or set HostNameInCertificate or "
                    "TrustServerCertificate"
                ),
            ) from error
        advice = "check that it runs, and that this machine and every executor can connect to it"
        if number_of(error) == _CANNOT_OPEN:
            advice = (
                "check the name of the database in the dsn; one that is offline, recovering or "
                "moving is refused in the same way"
            )
        raise StoreError(
            f"Cannot connect to SQL Server at {server}: {text}", transient=True, advice=advice
        ) from error


def _grant_of(text: str) -> str:
    """What grants the right that the server's text misses."""
    if found := _MISSING_ON_OBJECT.search(text):
        thing = f"[{found['schema']}].[{found['object']}]"
        return (
            f"run GRANT {found['right']} ON {thing} TO the user of the dsn, in database "
            f"[{found['database']}]"
        )
    if found := _MISSING_IN_DATABASE.search(text):
        return (
            f"run GRANT {found['right']} TO the user of the dsn, in database [{found['database']}]"
        )
    return "have an administrator GRANT this right to the user of the dsn"


def number_of(error: "pyodbc.Error") -> int | None:
    """The server's number of an error; None for an error of the ODBC driver itself."""
    found = _NUMBER.search(str(error))
    return int(found[1]) or None if found else None


def sentence(error: "pyodbc.Error") -> str:
    """The server's text, without the names of the components that passed it on."""
    words = str(error.args[1] if len(error.args) > 1 else error)
    text = " ".join(_NUMBER.sub("", _NOISE.sub("", words)).split()).strip("; ")
    number = number_of(error)
    return make_storable(f"{text} ({number or _state(error)})")


def _describe(error: "pyodbc.Error", what: str | None) -> Problem:
    text, number = sentence(error), number_of(error)
    # The texts of locks and of lost transactions name no table.
    is_nameless = _fault_of(error) in {Fault.LOCK, Fault.TRANSACTION}
    is_nameless = is_nameless or _state(error) == _TIMED_OUT
    if not what or not is_nameless:
        return Problem(text)
    more = _LOCKED if number == _LOCK_TIMED_OUT else Problem("")
    return Problem(f"Statement {what}: {text}{more.text}", more.advice)


def _destination_error(text: str, error: "pyodbc.Error") -> StoreError | RefusedMessageError:
    number, fault = number_of(error), _fault_of(error)
    match fault:
        case Fault.TRANSACTION:
            return TransactionLostError(text)
        case Fault.SERVICE:
            return StoreError(text, transient=True)
        case Fault.ROW:
            return RefusedMessageError(text)
    if _state(error) == _TIMED_OUT:
        return DestinationError(f"{text}; the statement took too long")
    # A lock passes, but each try would hold up the messages for other queues as long again.
    more = _QUEUE_FAULTS.get(number or 0, Problem("", "look at its triggers and constraints"))
    is_passing = fault is Fault.DATABASE
    return DestinationError(text + more.text, transient=is_passing, advice=more.advice)


def _fault_of(error: "pyodbc.Error") -> Fault | None:
    """Whose fault an error is; None: not known, and it does not pass."""
    number, state = number_of(error), _state(error)
    if _USED_UP.search(str(error)):
        return Fault.TABLE
    if number is not None and number in FAULTS:
        return FAULTS[number]
    if state.startswith("08"):
        return Fault.SERVICE
    is_users = number is not None and number >= _FIRST_RAISED_BY_USERS and number != _STAND_IN
    return Fault.ROW if is_users or state[:2] in {"22", "23"} else None


def _is_passing(error: "pyodbc.Error") -> bool:
    passing = {Fault.SERVICE, Fault.DATABASE, Fault.LOCK}
    return _fault_of(error) in passing or _state(error) == _TIMED_OUT


def _state(error: "pyodbc.Error") -> str:
    return str(error.args[0]) if error.args else ""
