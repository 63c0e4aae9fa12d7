"""The kinds of delayed table on SQL Server; `KINDS` has them by `store.kind`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from duesweep.core.message import Message
from duesweep.stores.relational.kinds import TableKind, delayed_tables
from duesweep.stores.relational.messages import (
    json_headers,
    json_message,
    json_message_with_destination,
    json_row,
)
from duesweep.stores.relational.pauses import destination_like, headers_like
from duesweep.stores.relational.timeouts import (
    SETTINGS,
    timeout_row,
    timeout_tables,
)
from duesweep.stores.sqlserver.msmq import msmq_headers, msmq_message, msmq_row, msmq_tables

_LONGEST_KEY = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerTableKind(TableKind):
    """The alias of the delayed table is `m` where a name needs one.

    `index`: the name of the index on Due. `lowest_key`: no key is lower.
    `is_key`: whether a text can be a key.
    `has_indexed_key`: rows are removed by their keys; False: by their Dues.
    `raise_counters`: the statement that raises the rows' own counters of failures; None: they have
    none, so that duesweep's own table counts.
    `stored_headers`: from a message and its headers as they are stored, what the journal keeps of
    them: JSON (None where they cannot be read), and text.
    """

    index: str
    lowest_key: str
    is_key: Callable[[str], bool]
    has_indexed_key: bool = False
    raise_counters: str | None = None
    stored_headers: Callable[[Message, Any], tuple[str | None, str]] = json_headers


def _is_row_version(text: str) -> bool:
    return re.fullmatch(r"-?[0-9]{1,18}", text) is not None


def _is_short_text(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_KEY


def _is_uuid(text: str) -> bool:
    return re.fullmatch(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}", text) is not None


TRANSPORT = SqlServerTableKind(
    columns={
        "RowVersion": "bigint",
        "Headers": "nvarchar",
        "Body": "varbinary",
        "Due": "datetime",
    },
    due="Due",
    table_names=delayed_tables,
    read_message=json_message,
    new_row=json_row,
    pausing=headers_like,
    index="Index_Due",
    lowest_key=str(-(2**63)),
    is_key=_is_row_version,
    names={
        "due": "[Due]",
        "key": "[RowVersion]",
        "key_type": "bigint",
        "key_text": "CONVERT(nvarchar(250), m.[RowVersion])",
        "collate": "",
        "body": "[Body]",
        "destination": "CONVERT(nvarchar(200), NULL)",
        "pausable": "m.[Headers]",
        "retry_count": "0",
    },
)

MSMQ = SqlServerTableKind(
    columns={
        "Id": "nvarchar",
        "Destination": "nvarchar",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "varbinary",
        "RetryCount": "int",
    },
    due="Time",
    table_names=msmq_tables,
    read_message=msmq_message,
    new_row=msmq_row,
    store="store_msmq_message",
    create="create_msmq_delayed",
    index="Index_Time",
    has_indexed_key=True,
    lowest_key="",
    is_key=_is_short_text,
    raise_counters="raise_retry_counts",
    stored_headers=msmq_headers,
    may_lack_due=True,
    has_destination=True,
    pausing=destination_like,
    has_own_queue=False,
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "nvarchar(250)",
        "key_text": "CONVERT(nvarchar(250), m.[Id])",
        # Whatever the column's own is.
        "collate": " COLLATE DATABASE_DEFAULT",
        "body": "[State]",
        "destination": "m.[Destination]",
        "pausable": "m.[Destination]",
        "retry_count": "m.[RetryCount]",
    },
)

SQL_PERSISTENCE = SqlServerTableKind(
    columns={
        "Id": "uniqueidentifier",
        "Destination": "nvarchar",
        "SagaId": "uniqueidentifier",
        "State": "varbinary",
        "Time": "datetime",
        "Headers": "nvarchar",
        "PersistenceVersion": "varchar",
    },
    due="Time",
    create=None,
    settings=SETTINGS,
    table_names=timeout_tables,
    read_message=json_message_with_destination,
    new_row=timeout_row,
    store="store_timeout",
    index="Index_Time",
    has_indexed_key=True,
    lowest_key=str(UUID(int=0)),
    is_key=_is_uuid,
    may_lack_due=True,
    has_destination=True,
    pausing=destination_like,
    has_own_queue=False,
    names={
        "due": "[Time]",
        "key": "[Id]",
        "key_type": "uniqueidentifier",
        # The server writes it in capitals, nobody else does.
        "key_text": "LOWER(CONVERT(nvarchar(250), m.[Id]))",
        "collate": "",
        "body": "[State]",
        "destination": "m.[Destination]",
        "pausable": "m.[Destination]",
        "retry_count": "0",
    },
)

KINDS = {"sqlserver": TRANSPORT, "msmq": MSMQ, "sql-persistence": SQL_PERSISTENCE}
