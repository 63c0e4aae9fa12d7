"""All use of psycopg: sessions, statements, COPY, and whose fault an error is."""

from duesweep.drivers.postgresql.connect import (
    DRIVER_LIMITS,
    TASK_LIMITS,
    connect,
    connect_as_server,
    database_of,
    server_time_zone,
)
from duesweep.drivers.postgresql.connection import PostgreSqlConnection, array_text
from duesweep.drivers.postgresql.errors import row_errors
from duesweep.drivers.postgresql.statements import Names, PostgreSqlStatements, literal, text_of
from duesweep.drivers.postgresql.uuids import UuidArray

__all__ = [
    "DRIVER_LIMITS",
    "TASK_LIMITS",
    "Names",
    "PostgreSqlConnection",
    "PostgreSqlStatements",
    "UuidArray",
    "array_text",
    "connect",
    "connect_as_server",
    "database_of",
    "literal",
    "row_errors",
    "server_time_zone",
    "text_of",
]
