"""All use of pyodbc: sessions, statements, and whose fault an error is."""

from duesweep.drivers.sqlserver.binding import key_list, literal
from duesweep.drivers.sqlserver.connect import connect
from duesweep.drivers.sqlserver.connection import SqlServerConnection
from duesweep.drivers.sqlserver.dsn import OdbcDsn, database_of
from duesweep.drivers.sqlserver.errors import row_errors
from duesweep.drivers.sqlserver.names import creation, script, table_names
from duesweep.drivers.sqlserver.statements import SqlServerStatements
from duesweep.drivers.sqlserver.values import bound_text, due_of, due_text, last_text

__all__ = [
    "OdbcDsn",
    "SqlServerConnection",
    "SqlServerStatements",
    "bound_text",
    "connect",
    "creation",
    "database_of",
    "due_of",
    "due_text",
    "key_list",
    "last_text",
    "literal",
    "row_errors",
    "script",
    "table_names",
]
