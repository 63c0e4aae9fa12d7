"""Settings that contradict each other or have no effect."""

import difflib
from dataclasses import replace
from itertools import pairwise
from typing import get_args

from pydantic import SecretStr

from duesweep.config.model import Config, QueueConfig, StoreConfig, variable_of
from duesweep.core.errors import ConfigError, Problem
from duesweep.drivers.dsn import DsnError
from duesweep.drivers.servers import DIALECTS, SERVERS, SQL_PERSISTENCE, QueueKind, dialect_of

_RABBITMQ_ONLY = {
    "url",
    "topology",
    "ca_file",
    "client_certificate",
    "client_key",
    "max_in_flight",
    "management_url",
}


def first_problem(config: Config) -> Problem | None:
    """The first setting that contradicts others, or has no effect; or None."""
    rules = (
        *(_name_problem, _dsn_problem, _store_problem),
        *(_queue_problem, _route_problem, _retry_problem),
    )
    return next(filter(None, (rule(config) for rule in rules)), None)


def _name_problem(config: Config) -> Problem | None:
    """The problem with the connections' names, or None."""
    if any(not name.strip() for name in config.queues):
        return Problem("queues has a section with an empty name", "name it, as [queues.default]")
    for first, second in pairwise(sorted(config.queues, key=lambda name: (name.lower(), name))):
        if first.lower() == second.lower():
            return Problem(
                f"queues.{first} and queues.{second} differ only by case, and environment "
                "variables are not case-sensitive",
                "rename one of them",
            )
    return None


def _retry_problem(config: Config) -> Problem | None:
    """The problem with the back-off settings, or None."""
    retry = config.retry
    if retry.max_seconds >= retry.initial_seconds:
        return None
    first, most = f"{retry.initial_seconds:g}", f"{retry.max_seconds:g}"
    origin = "" if "initial_seconds" in retry.model_fields_set else " by default"
    return Problem(
        f"retry.max_seconds is {most}, less than retry.initial_seconds, {first}{origin}",
        f"set retry.initial_seconds to at most {most}, or retry.max_seconds to at least {first}",
    )


def _store_problem(config: Config) -> Problem | None:
    """The problem with the store's settings, or None."""
    store = config.store
    useless = _useless_setting(store)
    if useless is not None:
        where = f" in {store.server.title}" if store.kind == SQL_PERSISTENCE else ""
        return Problem(
            f"store.{useless} has no effect on a store of kind {store.kind}{where}", "remove it"
        )
    kindless = sorted(name for name, queue in config.connections.items() if queue.kind is None)
    *kinds, last = get_args(QueueKind)
    if store.is_custom and kindless:
        return Problem(
            f"queues.{kindless[0]}.kind is not set, and a store of kind {store.kind} has no queues "
            "of its own",
            f"set it to {', '.join(kinds)} or {last}",
        )
    if store.kind == "msmq" and "max_attempts" in config.retry.model_fields_set:
        return Problem(
            "retry.max_attempts has no effect on a store of kind msmq, whose rows count their own "
            "retries",
            "set store.number_of_retries, after which a message gets two more attempts",
        )
    server, batch_rows = store.server, config.sweep.batch_rows or 0
    if server.most_batch_rows is not None and batch_rows > server.most_batch_rows:
        return Problem(
            f"sweep.batch_rows is {batch_rows}, and {server.title} locks the whole table if a "
            "statement takes 5,000 locks",
            f"set it to at most {server.most_batch_rows}",
        )
    return None


def _dsn_problem(config: Config) -> Problem | None:
    """The first dsn that is not of its connection's kind, or that its driver cannot read; or None.
    The dsn of a custom store may have any form.
    """
    store = config.store
    kinds: dict[str, tuple[str | None, SecretStr | None]] = {}
    if not store.is_custom:
        kinds["store"] = store.kind, store.dsn
    for name, queue in config.connections.items():
        kind = queue.kind or (None if store.is_custom else store.dialect)
        kinds[f"queues.{name}"] = kind, queue.dsn
    for section, (kind, dsn) in kinds.items():
        if dsn is None:
            continue
        text = dsn.get_secret_value()
        own = config.queues.get(section.partition(".")[2])
        is_default = "kind" not in store.model_fields_set and not (own and own.kind)
        if contradiction := _contradiction(kind, text, is_default=is_default):
            return Problem(f"{section}.kind {contradiction}", "correct the wrong one of the two")
        dialect = store.dialect if section == "store" else kind
        if (problem := _unreadable(text, dialect)) is not None:
            return replace(problem, text=f"{section}.dsn is wrong: {problem.text}")
    if store.jdbc_url is not None:
        try:
            store.server.check_jdbc_url(store.jdbc_url.get_secret_value())
        except ConfigError as error:
            return error.problem
    return None


def _unreadable(dsn: str, dialect: str | None) -> Problem | None:
    """That the driver of this dialect cannot read a dsn, or would misread it; or None."""
    try:
        if dialect in SERVERS:
            SERVERS[dialect].check_dsn(dsn)
    except (DsnError, ConfigError) as error:
        text = error.problem.text
        return replace(error.problem, text=text[:1].lower() + text[1:])
    return None


def _contradiction(kind: str | None, dsn: str, *, is_default: bool) -> str | None:
    """How the kind of a connection and the form of its dsn contradict each other. A dsn that both
    Npgsql and SqlClient would take is PostgreSQL's if that kind is given.
    """
    expected, found = DIALECTS.get(str(kind), kind), dialect_of(dsn)
    if found is None or expected not in SERVERS or found == expected:
        return None
    if SERVERS[expected].takes(dsn) and not is_default:
        return None
    forms = f"its dsn is one of {SERVERS[found].title}"
    return f"is {kind}, but {forms}: kind and dsn contradict each other"


def _useless_setting(store: StoreConfig) -> str | None:
    """A setting that is set, but that a store of this kind does not use."""
    if store.is_custom:
        return None
    users = {
        "writer_time_zone": store.server.has_writers_zone and store.kind == store.dialect,
        "number_of_retries": store.kind == "msmq",
        "jdbc_url": store.server.has_jdbc_url,
        "table_prefix": store.kind == SQL_PERSISTENCE,
    }
    for setting, is_used in users.items():
        if getattr(store, setting) is not None and not is_used:
            return setting
    return "options" if store.options else None


def route_notice(config: Config) -> Problem | None:
    """The warning that an MSMQ store has no route, so that its addresses are read literally; None
    if this does not apply.
    """
    if config.store.kind != "msmq" or config.route:
        return None
    (only,) = config.connections.values()
    if only.kind == "rabbitmq":
        return Problem(
            "Without a [[route]], MSMQ's address Billing@HOST-2 is read as endpoint Billing@HOST-2 "
            "of RabbitMQ",
            "add a [[route]] that says which endpoint it is",
        )
    read_as = SERVERS[only.kind or config.store.dialect].machine_address
    server = "the store's own server" if only.dsn is None else "the server of queues.default"
    return Problem(
        f"Without a [[route]], MSMQ's address Billing@HOST-2 is read as {read_as} of {server}",
        "add a [[route]] that says which queue it is",
    )


def _route_problem(config: Config) -> Problem | None:
    """The first mismatch between routes and connections, or None."""
    used = {route.connection for route in config.route} if config.route else {"default"}
    unknown = sorted(used - set(config.queues)) if config.route else []
    if unknown:
        near = difflib.get_close_matches(unknown[0], config.queues, n=1)
        hint = f"did you mean {near[0]}?" if near else f"add a section [queues.{unknown[0]}]"
        return Problem(f"Unknown connection {unknown[0]} in a [[route]]", hint)
    unused = sorted(set(config.queues) - used)
    if unused:
        way = (
            "name it in a [[route]]"
            if config.route
            else "rename it to queues.default, or add a [[route]]"
        )
        return Problem(f"queues.{unused[0]} is not used", way)
    return None


def _queue_problem(config: Config) -> Problem | None:
    """The problem with a queue connection, or None."""
    for name, queue in config.connections.items():
        problem = None
        if queue.kind == "rabbitmq":
            problem = _rabbitmq_problem(name, queue)
        elif alien := sorted(queue.model_fields_set & _RABBITMQ_ONLY):
            text = f'{alien[0]} has no effect without kind = "rabbitmq"'
            problem = Problem(text, "remove it, or set the kind")
        if problem is not None:
            return replace(problem, text=f"queues.{name}.{problem.text}")
    has_rabbitmq = any(queue.kind == "rabbitmq" for queue in config.connections.values())
    if config.sweep.look_ahead_seconds and not has_rabbitmq:
        return Problem(
            "sweep.look_ahead_seconds is set, but only RabbitMQ can hold messages until they are "
            "due, and no [queues] section is of kind rabbitmq",
            "remove the setting",
        )
    return None


def _rabbitmq_problem(name: str, queue: QueueConfig) -> Problem | None:
    for setting in ("dsn", "db_schema"):
        if getattr(queue, setting) is not None:
            return Problem(f"{setting.removeprefix('db_')} has no effect on RabbitMQ", "remove it")
    if queue.readable_body:
        return Problem("readable_body has no effect on RabbitMQ", "remove it")
    if not queue.urls:
        return Problem(
            "url is not set",
            "give it, as in amqps://user@host:5671/vhost, in the configuration file or as "
            f"{variable_of(f'queues.{name}.url')}",
        )
    files = [f for f in ("ca_file", "client_certificate", "client_key") if getattr(queue, f)]
    if files and not all(url.startswith("amqps:") for url in queue.urls):
        return Problem(
            f"{files[0]} is set, but has no effect on a url that does not begin with amqps:",
            f"write each url with amqps:, or remove {files[0]}",
        )
    if queue.client_key and not queue.client_certificate:
        return Problem("client_key is set without client_certificate", "give both")
    return None
