"""How SQL persistence keeps a builder's row: the destination in a column, headers as JSON.

A builder's row is written in it by its meaning; headers that are no JSON go in as they are.
"""

import json
from dataclasses import replace

from duesweep.core.errors import UnreadableHeadersError
from duesweep.core.headers import FORWARD_DESTINATION, read_json
from duesweep.core.message import Message
from duesweep_testing.builders import DelayedRow, message

# If nothing can be read, the destination column still has one.
UNREADABLE_DESTINATION = "Billing"

POSTGRESQL_TABLE = """
    CREATE TABLE {table} (
        "Id" uuid PRIMARY KEY, "Destination" varchar(200), "SagaId" uuid, "State" bytea,
        "Time" timestamp, "Headers" text, "PersistenceVersion" varchar(23)
    );
    CREATE INDEX {index} ON {table} ("Time");
    CREATE INDEX ON {table} ("SagaId");
"""
SQL_SERVER_TABLE = """
    CREATE TABLE {table} (
        Id uniqueidentifier NOT NULL PRIMARY KEY, Destination nvarchar(200),
        SagaId uniqueidentifier, State varbinary(max), Time datetime,
        Headers nvarchar(max) NOT NULL, PersistenceVersion varchar(23) NOT NULL
    );
    CREATE INDEX Index_SagaId ON {table} (SagaId);
    CREATE INDEX Index_Time ON {table} (Time);
"""


def destination_of(row: DelayedRow) -> str | None:
    try:
        return read_json(row.headers).get(FORWARD_DESTINATION)
    except UnreadableHeadersError:
        return UNREADABLE_DESTINATION


def timeout_headers(row: DelayedRow) -> str:
    """The row's headers as Newtonsoft's serializer writes them, on Windows."""
    try:
        headers = dict(read_json(row.headers))
    except UnreadableHeadersError:
        return row.headers
    headers.pop(FORWARD_DESTINATION, None)
    return json.dumps(headers, indent=2, ensure_ascii=False).replace("\n", "\r\n")


def timeout_of(row: DelayedRow, destination: str | None, attempts: int) -> Message:
    """The message that a claim of the row has to return."""
    text = timeout_headers(row)
    found = message(replace(row, headers=text), attempts)
    return found._replace(headers_text=text, destination=destination or "")
