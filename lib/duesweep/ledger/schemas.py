"""Columns of the ledger's tables, as Arrow has them; both writers take them from here.

Times are UTC instants, `_ms` milliseconds, `bytes` bytes. Each column may be NULL.
"""

import pyarrow as pa

_TEXT, _COUNT, _INSTANT = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")

TOMBSTONES = pa.schema(
    {
        "sweep_id": _TEXT,
        "source": _TEXT,
        "message_key": _TEXT,
        "message_id": _TEXT,
        "message_type": _TEXT,
        "destination": _TEXT,
        "queue": _TEXT,
        "due": _INSTANT,
        "dispatched_at": _INSTANT,
        "lateness_ms": _COUNT,
        "attempts": pa.int32(),
        "outcome": _TEXT,
        "body_bytes": _COUNT,
    }
)
RETRIES = pa.schema(
    {
        "source": _TEXT,
        "message_key": _TEXT,
        "message_id": _TEXT,
        "destination": _TEXT,
        "attempts": pa.int32(),
        "first_failed_at": _INSTANT,
        "last_failed_at": _INSTANT,
        "next_attempt_at": _INSTANT,
        "error_class": _TEXT,
        "error_text": _TEXT,
    }
)
ERRORS = pa.schema(
    [
        *RETRIES,
        pa.field("sweep_id", _TEXT),
        pa.field("headers", pa.map_(_TEXT, _TEXT)),
        pa.field("headers_text", _TEXT),
        pa.field("body", pa.binary()),
        pa.field("stack", _TEXT),
    ]
)
SWEEPS = pa.schema(
    {
        "sweep_id": _TEXT,
        "source": _TEXT,
        "start": _INSTANT,
        "end": _INSTANT,
        "horizon": _INSTANT,
        "found": _COUNT,
        "claimed": _COUNT,
        "dispatched": _COUNT,
        "failed": _COUNT,
        "exhausted": _COUNT,
        "skipped": _COUNT,
        "gone": _COUNT,
        "eligible_later": _COUNT,
        "left": _COUNT,
        "over_limit": _COUNT,
        "bytes": _COUNT,
        "lateness_p50_ms": _COUNT,
        "lateness_p95_ms": _COUNT,
        "lateness_max_ms": _COUNT,
        "rows_per_second": pa.float64(),
        "outcome": _TEXT,
        "reason": _TEXT,
        "engine": _TEXT,
    }
)
CHANGES = pa.schema(
    {
        "sweep_id": _TEXT,
        "source": _TEXT,
        "command": _TEXT,
        "change": _TEXT,
        "changed_at": _INSTANT,
        "given_by": _TEXT,
        "reason": _TEXT,
        "message_key": _TEXT,
        "message_id": _TEXT,
        "message_type": _TEXT,
        "destination": _TEXT,
        "due_before": _INSTANT,
        "due_after": _INSTANT,
        "queue": _TEXT,
        "of": _TEXT,
        "new_key": _TEXT,
        "headers": pa.map_(_TEXT, _TEXT),
        "headers_text": _TEXT,
        "body": pa.binary(),
        "body_bytes": _COUNT,
    }
)
SCHEMAS = {
    "tombstones": TOMBSTONES,
    "retries": RETRIES,
    "errors": ERRORS,
    "sweeps": SWEEPS,
    "changes": CHANGES,
}
