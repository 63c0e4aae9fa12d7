"""From settings to the parts of a sweep: store, queues, ledger, limits."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module  # noqa: TID251 - `store.kind` may name a class
from pathlib import Path

from duesweep.config import (
    STARTED,
    Config,
    has_cluster_files,
    has_pyspark,
    otlp_settings,
    would_start_spark,
)
from duesweep.config.adapters import (
    QueueConnection,
    adapter,
    connections,
    named_by,
    sql_adapter,
    timeouts_of,
)
from duesweep.core import logs
from duesweep.core.errors import ConfigError, QueueNotFoundError, type_name
from duesweep.core.policy import (
    BatchSize,
    BreakerTimes,
    LedgerWriter,
    LookAhead,
    RateLimit,
    RateLimits,
    Retry,
    SweepEngine,
)
from duesweep.core.routing import EVERYTHING, Allowed, Route
from duesweep.ledger.ledger import can_delta_rs_reach, require_delta_rs_root
from duesweep.queues.base import Queue
from duesweep.queues.routed import RoutedQueue
from duesweep.stores.base import Store, StoreSettings, TransactionMode
from duesweep.stores.store import SqlStore
from duesweep.sweep.job import SweepContext, Tracing

# The required properties of a custom store.
_PROPERTIES = ("source", "own_queue")
_METHODS = (
    "initialise",
    "open_task",
    "open_driver",
    "set_up_infrastructure",
    "operators",
)


def sweep_context(config: Config, *, needs_ladder: bool = False) -> SweepContext:
    """The context of a sweep with this configuration. Connects to nothing."""
    swept = store_of(config)
    queues = _queue(config, swept, needs_ladder=needs_ladder)
    swept.initialise(config.store.endpoint, _mode(config, queues))
    retry = Retry(**dict(config.retry))
    if config.store.kind == "msmq":
        # The transport compares its setting with the count before it raises the count. So a message
        # gets two more attempts. A message for an unknown queue gets only one.
        attempts = (config.store.number_of_retries or 0) + 2
        retry = replace(retry, max_attempts=attempts, non_retryable=(QueueNotFoundError,))
    root = ledger_root(config.ledger.root)
    batch_rows = config.sweep.batch_rows or config.store.server.batch_rows
    return SweepContext(
        store=swept,
        queue=queues,
        ledger_root=root,
        ledger_writer=_ledger_writer(config.ledger.writer, root),
        batch_size=BatchSize(batch_rows, config.sweep.batch_bytes),
        retry=retry,
        slices=config.sweep.slices,
        spark_from=_spark_from(config),
        look_ahead=LookAhead(config.sweep.look_ahead_seconds, STARTED),
        breaker=BreakerTimes(**dict(config.breaker)),
        rate_limits=RateLimits(
            tuple(RateLimit(each.destination, each.per_second) for each in config.limit),
            config.store.endpoint,
        ),
        own_name=config.store.endpoint,
        timeouts=timeouts_of(config),
        objective_seconds=config.slo.lateness_seconds,
        tracing=tracing(),
    )


def _spark_from(config: Config) -> int | None:
    if config.sweep.engine is not SweepEngine.AUTO:
        return 0 if config.sweep.engine is SweepEngine.SPARK else None
    if config.sweep.spark_from is not None:
        return config.sweep.spark_from
    server = config.store.server
    return server.cold_spark_from if would_start_spark() else server.spark_from


def handover_context(config: Config) -> SweepContext:
    """The context of a handover: its queues have to hold messages until they are due."""
    return sweep_context(config, needs_ladder=True)


def store_of(config: Config) -> Store:
    """The store to sweep."""
    if config.store.is_custom:
        return _custom_store(config)
    return sql_adapter(config.store.dialect).store(config)


def own_names(config: Config) -> tuple[str, ...]:
    """The names of the endpoint's own queue in routes: its name, and its queue's whole address."""
    return config.store.endpoint, store_of(config).own_queue


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


def routes_of(config: Config) -> tuple[Route, ...]:
    """The routes, in their order."""
    return tuple(Route(r.destination, r.connection, r.queue) for r in config.route)


def check_shared_transaction(connection: QueueConnection, store: Store) -> None:
    """Raise `ConfigError` where a connection has no dsn, but the custom store has no transaction
    that its queues could share.
    """
    settings = connection.config.store
    if connection.is_beside and not (
        isinstance(store, SqlStore) and store.dialect.statements == connection.kind
    ):
        raise ConfigError(
            f"{connection.setting}.dsn is not set, but the queues cannot share the transaction of "
            f"{settings.kind}: it is not a subclass of duesweep's store of kind {connection.kind}",
            advice=f"set {connection.setting}.dsn",
        )


def _queue(config: Config, swept: Store, *, needs_ladder: bool) -> Queue:
    queues: dict[str, Queue] = {}
    found = connections(config, needs_ladder=needs_ladder)
    for name, connection in found.items():
        if config.store.is_custom:
            check_shared_transaction(connection, swept)
        queues[name] = adapter(connection.kind).queue(connection)
    for route in routes_of(config):
        if (queue := route.only_queue) is not None and route.connection in found:
            with named_by(f"queue of the [[route]] for {route.pattern}"):
                connection = found[route.connection]
                adapter(connection.kind).queue_table(connection, queue)
    allowed = config.sweep.allow_destinations
    if not config.route and allowed == (EVERYTHING,):
        (only,) = queues.values()
        return only
    routes = routes_of(config) or tuple(Route("*", name, "{destination}") for name in queues)
    names = (config.store.endpoint, swept.own_queue)
    return RoutedQueue(queues, routes, names, Allowed(allowed, config.retry.error_queue))


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
    """The writer; `AUTO`: delta-rs, if a session that may be there has the same files."""
    if asked is LedgerWriter.DELTA_RS:
        require_delta_rs_root(root)
    if asked is not LedgerWriter.AUTO:
        return asked
    if not can_delta_rs_reach(root):
        return LedgerWriter.SPARK
    if has_cluster_files():
        return LedgerWriter.SPARK if has_pyspark() else LedgerWriter.DELTA_RS
    return asked


def tracing() -> Tracing:
    """The traces that OpenTelemetry's variables ask for; if impossible, a warning and no traces."""
    settings = otlp_settings("traces")
    if settings is None:
        return Tracing()
    try:
        from duesweep.sweep.traces import OtlpTracing, described_service  # noqa: PLC0415 - few
    except ImportError:
        problem = "OpenTelemetry is not installed; install duesweep[otel]"
    else:
        if settings.problem is None:
            return OtlpTracing(settings.endpoint, settings.headers, described_service())
        problem = settings.problem
    logs.warning("no_traces", reason=problem)
    return Tracing()


def _custom_store(config: Config) -> Store:
    """An instance of the class that `store.kind` names, made from the settings of its section.

    Raises `ConfigError` for all errors of that class, without their text: it may hold the dsn.
    """
    settings, kind = config.store, config.store.kind
    make = _class(kind)
    try:
        made = make(
            StoreSettings(
                dsn=settings.dsn.get_secret_value(),
                endpoint=settings.endpoint,
                name=settings.name,
                schema=settings.db_schema,
                delayed_table=settings.delayed_table,
                batch_bytes=config.sweep.batch_bytes,
                options=settings.options,
                timeouts=timeouts_of(config),
            )
        )
        lacking = [
            *(name for name in _PROPERTIES if not hasattr(made, name)),
            *(name for name in _METHODS if not callable(getattr(made, name, None))),
        ]
    except ConfigError:
        # A `ConfigError` has a text for users.
        raise
    except Exception as error:
        raise ConfigError(
            f"{kind} cannot be made from a StoreSettings: it raises {type_name(error)}",
            advice="see docs/stores.md",
        ) from error
    if lacking:
        raise ConfigError(
            f"{kind} is not a store: it lacks {', '.join(lacking)}",
            advice="inherit from duesweep.stores.base.Store (docs/stores.md)",
        )
    return made


def _class(kind: str) -> Callable[[StoreSettings], Store]:
    module_name, _, class_name = kind.partition(":")
    advice = "put its package on PYTHONPATH, on every executor too (--py-files)"
    try:
        # Code of the user: it may raise anything.
        module = import_module(module_name)
    except Exception as error:
        # Only the module that is missing or lacks a name, never the error's text.
        missing = error.name if isinstance(error, ImportError) else None
        reason = type_name(error) + (f" of {missing}" if missing else "")
        raise ConfigError(
            f"store.kind is {kind!r}, which cannot be imported ({reason})", advice=advice
        ) from error
    if not hasattr(module, class_name):
        raise ConfigError(
            f"store.kind is {kind!r}, but {module_name} has no {class_name}",
            advice="correct the name of the class",
        )
    found: Callable[[StoreSettings], Store] = getattr(module, class_name)
    return found
