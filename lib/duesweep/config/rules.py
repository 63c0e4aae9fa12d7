"""What settings cannot be meant together."""

import difflib

from duesweep.config.model import Config
from duesweep.policy import MAX_BATCH_ROWS


def store_problem(config: Config) -> str | None:
    """Why the store cannot be meant so; None where it can."""
    store = config.store
    only_of = {
        "writer_time_zone": {"postgresql"},
        "number_of_retries": {"msmq"},
        "jdbc_url": {"sqlserver", "msmq"},
    }
    is_brought = ":" in store.kind
    for setting, kinds in only_of.items():
        if getattr(store, setting) is not None and store.kind not in kinds and not is_brought:
            return f"store.{setting} means nothing to a store of kind {store.kind}; leave it out"
    if store.options and not is_brought:
        return f"store.options means nothing to a store of kind {store.kind}; leave it out"
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
