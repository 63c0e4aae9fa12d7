"""All use of pyodbc: sessions, statements, and whose fault an error is."""

from duesweep.drivers.sqlserver.binding import key_list, literal
from duesweep.drivers.sqlserver.connect import connect
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of

__all__ = [
    "OdbcDsn",
    "SqlServerConnection",
    "connect",
    "database_of",
    "key_list",
    "literal",
]
