"""Columns of the ledger's tables. Times are UTC instants; `_ms` columns are milliseconds."""

from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TEXT, _COUNT, _INSTANT = StringType(), LongType(), TimestampType()


def _schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


TOMBSTONES = _schema(
    sweep_id=_TEXT,
    source=_TEXT,
    message_key=_TEXT,
    message_id=_TEXT,
    message_type=_TEXT,
    destination=_TEXT,
    queue=_TEXT,
    due=_INSTANT,
    dispatched_at=_INSTANT,
    lateness_ms=_COUNT,
    attempts=IntegerType(),
    outcome=_TEXT,
    body_bytes=_COUNT,
)
_FAILURE = {
    "source": _TEXT,
    "message_key": _TEXT,
    "message_id": _TEXT,
    "destination": _TEXT,
    "attempts": IntegerType(),
    "first_failed_at": _INSTANT,
    "last_failed_at": _INSTANT,
    "next_attempt_at": _INSTANT,
    "error_class": _TEXT,
    "error_text": _TEXT,
}
RETRIES = _schema(**_FAILURE)
ERRORS = _schema(
    **_FAILURE,
    sweep_id=_TEXT,
    headers=MapType(_TEXT, _TEXT),
    headers_text=_TEXT,
    body=BinaryType(),
    stack=_TEXT,
)
SWEEPS = _schema(
    sweep_id=_TEXT,
    source=_TEXT,
    start=_INSTANT,
    end=_INSTANT,
    horizon=_INSTANT,
    found=_COUNT,
    claimed=_COUNT,
    dispatched=_COUNT,
    failed=_COUNT,
    exhausted=_COUNT,
    skipped=_COUNT,
    gone=_COUNT,
    eligible_later=_COUNT,
    left=_COUNT,
    over_limit=_COUNT,
    bytes=_COUNT,
    lateness_p50_ms=_COUNT,
    lateness_p95_ms=_COUNT,
    lateness_max_ms=_COUNT,
    rows_per_second=DoubleType(),
    outcome=_TEXT,
    reason=_TEXT,
)
SCHEMAS = {"tombstones": TOMBSTONES, "retries": RETRIES, "errors": ERRORS, "sweeps": SWEEPS}
