"""Makes what a sweep works with."""

from pathlib import Path

import structlog

from duesweep.config import Config, has_cluster_files, otlp_settings, started
from duesweep.core.errors import ConfigError, QueueNotFoundError
from duesweep.core.policy import (
    BATCH_ROWS,
    MAX_BATCH_ROWS,
    SPARK_FROM,
    SPARK_FROM_ON_SQL_SERVER,
    BatchLimits,
    BreakerLimits,
    LedgerWriter,
    LookAhead,
    RateLimit,
    RateLimits,
    Retry,
)
from duesweep.core.routing import EVERYTHING, Allowed, Route
from duesweep.ledger.ledger import require_delta_rs_root
from duesweep.queues.base import Queue
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import Store, TransactionMode
from duesweep.sweep.job import SweepContext, Tracing
from duesweep.wiring import custom
from duesweep.wiring.dialects import (
    check_shared_transaction,
    connections,
    dialect,
    queue_kind,
    timeouts_of,
)

_log = structlog.get_logger(__name__)


def sweep_context(config: Config, *, needs_ladder: bool = False) -> SweepContext:
    """The context of a sweep with this configuration. Connects to nothing."""
    swept = store(config)
    queues = _queue(config, swept, needs_ladder=needs_ladder)
    swept.initialise(config.store.endpoint, _mode(config, queues))
    root = ledger_root(config.ledger.root)
    return SweepContext(
        store=swept,
        queue=queues,
        ledger_root=root,
        ledger_writer=_ledger_writer(config.ledger.writer, root),
        limits=BatchLimits(_batch_rows(config), config.sweep.batch_bytes),
        retry=_retry(config),
        max_exhausted=config.retry.max_exhausted_per_sweep,
        error_queue=config.retry.error_queue,
        slices=config.sweep.slices,
        spark_from=_spark_from(config),
        look_ahead=LookAhead(config.sweep.look_ahead_seconds, started()),
        breaker=BreakerLimits(
            config.breaker.trigger_seconds, config.breaker.recovery_failures_per_second
        ),
        rate_limits=RateLimits(
            tuple(RateLimit(each.destination, each.per_second) for each in config.limit),
            config.store.endpoint,
        ),
        own_name=config.store.endpoint,
        timeouts=timeouts_of(config),
        objective_seconds=config.slo.lateness_seconds,
        tracing=tracing(),
    )


def _batch_rows(config: Config) -> int:
    usual = BATCH_ROWS if config.store.dialect == "postgresql" else MAX_BATCH_ROWS
    return config.sweep.batch_rows or usual


def _spark_from(config: Config) -> int:
    if config.sweep.spark_from is not None:
        return config.sweep.spark_from
    return SPARK_FROM if config.store.dialect == "postgresql" else SPARK_FROM_ON_SQL_SERVER


def handover_context(config: Config) -> SweepContext:
    """The context of a handover: its queues have to hold messages until they are due."""
    return sweep_context(config, needs_ladder=True)


def store(config: Config) -> Store:
    """The store to sweep."""
    if config.store.is_custom:
        return custom.store(config)
    return dialect(config.store.dialect).store(config)


def queue(config: Config) -> Queue:
    """The queues to deliver to."""
    return _queue(config, store(config), needs_ladder=False)


def own_names(config: Config) -> tuple[str, ...]:
    """The names of the endpoint's own queue in routes: its name, and its queue's whole address."""
    return config.store.endpoint, store(config).own_queue


def ledger_root(root: str) -> str:
    """The ledger's root. A relative path starts at the current folder, `~` at the home folder. A
    root without a slash is a catalog schema.
    """
    if ":" in root or not ("/" in root or root.startswith("~")):
        return root
    try:
        return str(Path(root).expanduser().resolve())
    except RuntimeError as error:
        raise ConfigError(
            f"ledger.root is {root!r}, but that home folder cannot be found",
            advice="write the path in full",
        ) from error


def _queue(config: Config, swept: Store, *, needs_ladder: bool) -> Queue:
    queues: dict[str, Queue] = {}
    for name, connection in connections(config, needs_ladder=needs_ladder).items():
        check_shared_transaction(connection, swept)
        queues[name] = queue_kind(connection.kind).queue(connection)
    allowed = config.sweep.allow_destinations
    if not config.route and allowed == (EVERYTHING,):
        (only,) = queues.values()
        return only
    routes = [Route(r.destination, r.connection, r.queue) for r in config.route]
    if not routes:
        routes = [Route("*", name, "{destination}") for name in queues]
    names = (config.store.endpoint, swept.own_queue)
    return RoutedQueue(queues, tuple(routes), names, Allowed(allowed, config.retry.error_queue))


def _mode(config: Config, queues: Queue) -> TransactionMode:
    """The configured mode, else the strongest that the queues allow. `ConfigError` for more."""
    atomic = TransactionMode.SENDS_ATOMIC_WITH_RECEIVE
    asked = config.store.transaction_mode
    if asked == atomic and not queues.shares_transaction:
        raise ConfigError(
            f"store.transaction_mode is {asked.value}, but some queues are on connections of "
            "their own, where a message may arrive more than once",
            advice=(
                f"set {TransactionMode.RECEIVE_ONLY.value}, or remove their dsn if they "
                "are on the store's own server"
            ),
        )
    return asked or (atomic if queues.shares_transaction else TransactionMode.RECEIVE_ONLY)


def _ledger_writer(asked: LedgerWriter, root: str) -> LedgerWriter:
    if asked is LedgerWriter.DELTA_RS:
        require_delta_rs_root(root)
    if asked is LedgerWriter.AUTO and has_cluster_files():
        return LedgerWriter.SPARK
    return asked


def _retry(config: Config) -> Retry:
    retry = config.retry
    if config.store.kind != "msmq":
        return Retry(retry.max_attempts, retry.initial_seconds, retry.max_seconds)
    # The transport compares its setting with the count before it raises the count. So a message
    # gets two more attempts. A message for an unknown queue gets only one.
    attempts = (config.store.number_of_retries or 0) + 2
    return Retry(attempts, retry.initial_seconds, retry.max_seconds, (QueueNotFoundError,))


def tracing() -> Tracing:
    """What OpenTelemetry's variables ask for; where that cannot be had, a warning and no traces."""
    settings = otlp_settings("traces")
    if settings is None:
        return Tracing()
    try:
        from duesweep.sweep.traces import OtlpTracing, described_service  # noqa: PLC0415 - few want it
    except ImportError:
        problem = "OpenTelemetry is not installed; install duesweep[otel]"
    else:
        if settings.problem is None:
            return OtlpTracing(settings.endpoint, settings.headers, described_service())
        problem = settings.problem
    _log.warning("no_traces", reason=problem)
    return Tracing()
