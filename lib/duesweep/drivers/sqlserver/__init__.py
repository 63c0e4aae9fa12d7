"""pyodbc: sessions, statements, and whose fault an error is. Nobody else imports it."""

from duesweep.drivers.sqlserver.connect import DRIVER_LIMITS, TASK_LIMITS, TimeLimits, connect
from duesweep.drivers.sqlserver.connection import Connection, keys_json, literal
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of

__all__ = [
    "DRIVER_LIMITS",
    "TASK_LIMITS",
    "Connection",
    "OdbcDsn",
    "TimeLimits",
    "connect",
    "database_of",
    "keys_json",
    "literal",
]
