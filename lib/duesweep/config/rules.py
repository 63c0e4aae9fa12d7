"""What settings cannot be meant together."""

import difflib
from itertools import pairwise

from duesweep.config.model import Config
from duesweep.config.sections import QueueConfig, StoreConfig
from duesweep.config.wording import variable_of
from duesweep.policy import MAX_BATCH_ROWS

_RABBITMQ_ONLY = {
    "url",
    "topology",
    "ca_file",
    "client_certificate",
    "client_key",
    "max_in_flight",
    "management_url",
}


def name_problem(config: Config) -> str | None:
    """Why connections cannot be called so; None where they can."""
    if any(not name.strip() for name in config.queues):
        return "queues has a section whose name is empty; name it, as [queues.default]"
    for first, second in pairwise(sorted(config.queues, key=lambda name: (name.lower(), name))):
        if first.lower() == second.lower():
            return (
                f"queues.{first} and queues.{second} differ only by case, which variables of the "
                "environment do not tell apart; give one of them another name"
            )
    return None


def retry_problem(config: Config) -> str | None:
    """Why back-offs cannot be meant so; None where they can."""
    retry = config.retry
    if retry.max_seconds >= retry.initial_seconds:
        return None
    first, most = f"{retry.initial_seconds:g}", f"{retry.max_seconds:g}"
    origin = "" if "initial_seconds" in retry.model_fields_set else " by default"
    return (
        f"retry.max_seconds is {most}, less than retry.initial_seconds, {first}{origin}; set "
        f"retry.initial_seconds to at most {most}, or retry.max_seconds to at least {first}"
    )


def store_problem(config: Config) -> str | None:
    """Why the store cannot be meant so; None where it can."""
    store = config.store
    only_of = {
        "writer_time_zone": store.kind == "postgresql",
        "number_of_retries": store.kind == "msmq",
        "jdbc_url": store.dialect == "sqlserver",
        "table_prefix": store.kind == "sql-persistence",
    }
    for setting, has_meaning in only_of.items():
        if getattr(store, setting) is not None and not has_meaning and not store.is_custom:
            return f"store.{setting} means nothing to a store of kind {_kind(store)}; leave it out"
    if store.options and not store.is_custom:
        return f"store.options means nothing to a store of kind {store.kind}; leave it out"
    kindless = sorted(name for name, queue in _queues(config).items() if queue.kind is None)
    if store.is_custom and kindless:
        return (
            f"queues.{kindless[0]}.kind is not set, and a store of kind {store.kind} has no queues "
            "of its own; set it to postgresql, sqlserver or rabbitmq"
        )
    if store.kind == "msmq" and "max_attempts" in config.retry.model_fields_set:
        return (
            "retry.max_attempts means nothing to a store of kind msmq, whose rows count their own "
            "retries: set store.number_of_retries, after which a message gets two more attempts"
        )
    if store.dialect == "sqlserver" and config.sweep.batch_rows > MAX_BATCH_ROWS:
        return (
            f"sweep.batch_rows is {config.sweep.batch_rows}; on SQL Server {MAX_BATCH_ROWS} are "
            "the most, since it locks the whole table where a statement takes 5,000 locks"
        )
    return None


def _kind(store: StoreConfig) -> str:
    if store.kind != "sql-persistence":
        return store.kind
    server = {"postgresql": "PostgreSQL", "sqlserver": "SQL Server"}[store.dialect]
    return f"{store.kind} in {server}"


def route_notice(config: Config) -> str | None:
    """How an MSMQ store's addresses are read without a route, which is as nobody means them; None
    where it does not matter.
    """
    if config.store.kind != "msmq" or config.route:
        return None
    (only,) = _queues(config).values()
    if only.kind == "rabbitmq":
        return (
            "Without a [[route]], MSMQ's address Billing@HOST-2 is read as endpoint Billing@HOST-2 "
            "of RabbitMQ; add a [[route]] that says which endpoint it is"
        )
    read_as = "queue Billing in schema HOST-2"
    if only.kind == "postgresql":
        read_as = 'queue "Billing@HOST-2"'
    server = "the store's own server" if only.dsn is None else "the server of queues.default"
    return (
        f"Without a [[route]], MSMQ's address Billing@HOST-2 is read as {read_as} of {server}; add "
        "a [[route]] that says which queue it is"
    )


def route_problem(config: Config) -> str | None:
    """Why routes and connections do not fit; None where they do."""
    used = {route.connection for route in config.route} if config.route else {"default"}
    unknown = sorted(used - set(config.queues)) if config.route else []
    if unknown:
        near = difflib.get_close_matches(unknown[0], config.queues, n=1)
        hint = f"did you mean {near[0]}?" if near else f"add a section [queues.{unknown[0]}]"
        return f"A [[route]] names the connection {unknown[0]}, which there is not; {hint}"
    unused = sorted(set(config.queues) - used)
    if unused:
        way = (
            "name it in a [[route]]" if config.route else "call it queues.default, or add [[route]]"
        )
        return f"queues.{unused[0]} is not used; {way}"
    return None


def queue_problem(config: Config) -> str | None:
    """Why a queue connection cannot be meant so; None where all can."""
    for name, queue in _queues(config).items():
        problem = (
            _rabbitmq_problem(name, queue) if queue.kind == "rabbitmq" else _other_problem(queue)
        )
        if problem is not None:
            return f"queues.{name}.{problem}"
    if config.sweep.look_ahead_seconds and not _has_rabbitmq(config):
        return (
            "sweep.look_ahead_seconds is set, and no [queues] section is of kind rabbitmq, whose "
            "delayed delivery alone can hold messages until they are due; leave it out"
        )
    return None


def _has_rabbitmq(config: Config) -> bool:
    return any(queue.kind == "rabbitmq" for queue in _queues(config).values())


def _rabbitmq_problem(name: str, queue: QueueConfig) -> str | None:
    for setting in ("dsn", "db_schema"):
        if getattr(queue, setting) is not None:
            return f"{setting.removeprefix('db_')} means nothing to RabbitMQ; leave it out"
    if not queue.urls:
        return (
            "url is not set; give it, as in amqps://user@host:5671/vhost, in the configuration "
            f"file or as {variable_of(f'queues.{name}.url')}"
        )
    files = [f for f in ("ca_file", "client_certificate", "client_key") if getattr(queue, f)]
    if files and not all(url.startswith("amqps:") for url in queue.urls):
        return f"{files[0]} is set, but not all of url begin with amqps:, so it would go unused"
    if queue.client_key and not queue.client_certificate:
        return "client_key is set without client_certificate; give both"
    return None


def _other_problem(queue: QueueConfig) -> str | None:
    for setting in sorted(queue.model_fields_set & _RABBITMQ_ONLY):
        return f'{setting} means nothing without kind = "rabbitmq"; leave it out, or set that'
    return None


def _queues(config: Config) -> dict[str, QueueConfig]:
    return config.queues or {"default": QueueConfig()}
