"""What SQL persistence's table of timeouts is in every dialect: its name, and its rows.

The source of names and columns is NServiceBus.Persistence.Sql, version 6 and older.
"""

import uuid
from collections.abc import Sequence

import duesweep
from duesweep.core.headers import json as headers_json
from duesweep.core.waiting import SAGA_ID
from duesweep.stores.values import NewMessage

SETTINGS = "store.endpoint, store.table_prefix and store.schema"


def timeout_tables(endpoint: str, prefix: str | None) -> Sequence[str]:
    """The table's name; without a prefix of its own that is made of the endpoint's name."""
    if prefix is None:
        prefix = endpoint.replace(".", "_") + "_"
    return [f"{prefix}TimeoutData"]


def timeout_row(message: NewMessage, endpoint: str) -> dict[str, object]:
    """The values of a new row, less its Time, as text where they can be."""
    text = message.stored_headers
    return {
        "message_key": str(uuid.uuid4()),
        # Of a message that had none, which no queue is.
        "destination": endpoint if message.destination is None else message.destination or None,
        "saga_id": _saga_id(message.headers.get(SAGA_ID)),
        "body": message.body,
        "headers": headers_json.write(message.headers) if text is None else text,
        "version": f"duesweep {duesweep.__version__}",
    }


def _saga_id(header: str | None) -> str:
    """The saga that a timeout is for, as SQL persistence takes it out of the headers. Zeros for a
    timeout of no saga: it cannot read NULL.
    """
    try:
        return str(uuid.UUID(header or ""))
    except ValueError:
        return str(uuid.UUID(int=0))
