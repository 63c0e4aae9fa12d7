"""The proxy between a trial's sweep and a server."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from psycopg.conninfo import make_conninfo

from support.trials.faults import QUEUE, STORE
from support.trials.harmful_proxy import HarmfulProxy, harmful_proxy
from support.trials.services import Services
from support.trials.trial import Trial
from support.trials.world import BROKER, OTHER_DATABASE, World

# Each wait of the sweep's is a part of it.
_SHORT_SILENCE_SECONDS = 6
_BATCH = b"sweep_id, slice, kind, dispatched"
_PUBLISHED = b"NServiceBus.MessageIntent"


@contextmanager
def between(
    trial: Trial, services: Services, world: World
) -> Iterator[tuple[list[HarmfulProxy], dict[str, Any]]]:
    """The proxy that the fault needs, and the settings that lead through it."""
    side = trial.fault.side
    settings: dict[str, Any] = {}
    if side is None:
        yield [], settings
        return
    settings["timeouts__silence_seconds"] = _SHORT_SILENCE_SECONDS
    with ExitStack() as stack:
        is_broker = side == QUEUE and world.place == BROKER
        target = services.broker.amqp if is_broker else services.server.port
        proxy = stack.enter_context(harmful_proxy(target))
        if side == STORE:
            dsn = make_conninfo(world.endpoint.dsn, host="127.0.0.1", port=proxy.port)
            settings["store__dsn"] = dsn
        elif is_broker:
            vhost = str(world.settings["queues__default__url"]).rpartition("/")[2]
            settings["queues__default__url"] = services.broker.url(vhost, proxy.port)
        else:
            dsn = str(world.settings["queues__default__dsn"])
            settings["queues__default__dsn"] = make_conninfo(dsn, host="127.0.0.1", port=proxy.port)
        yield [proxy], settings


def awaited(trial: Trial) -> Sequence[bytes]:
    """What the connection sends when it is harmed: the COMMIT of a batch, or its messages."""
    if trial.fault.side == STORE:
        once: tuple[bytes, ...] = (_BATCH, b"COMMIT")
    elif trial.place == OTHER_DATABASE:
        once = (b"PGCOPY", b"COMMIT")
    else:
        once = (_PUBLISHED,)
    return once * trial.occurrence
