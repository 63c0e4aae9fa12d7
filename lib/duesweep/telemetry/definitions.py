"""The metrics, once: docs/metrics.md and the registry are made from them.

All have the one label `source`, the stable name of the store.
"""

from enum import StrEnum
from typing import NamedTuple

LABEL = "source"


class Kind(StrEnum):
    """Prometheus's types. A counter goes on from run to run, a gauge tells the last run."""

    COUNTER = "counter"
    GAUGE = "gauge"


class Metric(NamedTuple):
    """`name` as it is exposed; `meaning` is its HELP, a sentence without a full stop."""

    name: str
    kind: Kind
    meaning: str


DISPATCHED = Metric(
    "duesweep_dispatched_messages_total",
    Kind.COUNTER,
    "Messages delivered to their queue, or deferred to RabbitMQ's delayed delivery",
)
FAILED = Metric(
    "duesweep_failed_messages_total",
    Kind.COUNTER,
    "Deliveries that failed; the messages are in the store, and are tried again later",
)
EXHAUSTED = Metric(
    "duesweep_exhausted_messages_total",
    Kind.COUNTER,
    "Messages out of attempts, which left the store for the ledger's errors",
)
DISPATCHED_BYTES = Metric(
    "duesweep_dispatched_bytes_total", Kind.COUNTER, "Bytes of the bodies that were dispatched"
)
RUNS = Metric("duesweep_runs_total", Kind.COUNTER, "Runs that have ended, those without work too")
DUE = Metric(
    "duesweep_due_messages",
    Kind.GAUGE,
    "Messages due after the last run that the next one would take; counted up to 100,000",
)
OLDEST_DUE = Metric(
    "duesweep_oldest_due_age_seconds",
    Kind.GAUGE,
    "For how long the oldest stored message has been due, whatever holds it back; 0 if none is due",
)
LEFT = Metric(
    "duesweep_left_messages",
    Kind.GAUGE,
    "Messages that the last run planned and did not reach, or whose destination took nothing",
)
OPEN_BREAKERS = Metric(
    "duesweep_open_breakers",
    Kind.GAUGE,
    "Destinations and services that took nothing when the last run ended",
)
LATENESS_P50 = Metric(
    "duesweep_lateness_p50_seconds",
    Kind.GAUGE,
    "Time from Due to dispatch that half of the last run's messages did not exceed",
)
LATENESS_P95 = Metric(
    "duesweep_lateness_p95_seconds",
    Kind.GAUGE,
    "Time from Due to dispatch that 95 in 100 of the last run's messages did not exceed",
)
LATENESS_MAX = Metric(
    "duesweep_lateness_max_seconds",
    Kind.GAUGE,
    "Longest time from Due to dispatch in the last run",
)
DURATION = Metric("duesweep_run_duration_seconds", Kind.GAUGE, "How long the last run took")
EXIT_CODE = Metric("duesweep_run_exit_code", Kind.GAUGE, "Exit code of the last run")
LAST_RUN = Metric(
    "duesweep_last_run_timestamp_seconds", Kind.GAUGE, "When the last run ended, in Unix time"
)
LAST_SUCCESS = Metric(
    "duesweep_last_success_timestamp_seconds",
    Kind.GAUGE,
    "When a run last ended with exit code 0, in Unix time",
)

METRICS = (
    *(DISPATCHED, FAILED, EXHAUSTED, DISPATCHED_BYTES, RUNS),
    *(DUE, OLDEST_DUE, LEFT, OPEN_BREAKERS),
    *(LATENESS_P50, LATENESS_P95, LATENESS_MAX),
    *(DURATION, EXIT_CODE, LAST_RUN, LAST_SUCCESS),
)
NAMES = frozenset(metric.name for metric in METRICS)
