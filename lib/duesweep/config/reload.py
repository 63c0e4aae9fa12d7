"""Which settings of a running watcher a changed configuration may change."""

from collections.abc import Iterator

from duesweep.config.model import Config
from duesweep.config.rules import first_problem
from duesweep.config.sections import QueueConfig
from duesweep.core.errors import ConfigError

_SERVER = ("dsn", "url")


def keep_fixed(new: Config, old: Config) -> tuple[Config, list[str]]:
    """`new` with what a process keeps of `old`, and the names of those settings that differ: the
    store, the ledger's root, and where queues are. Raises `ConfigError` if what is new contradicts
    what stays.
    """
    fixed = {
        name: _kept(queue, before, is_same_kind=_kind(new, queue) == _kind(old, before))
        for name, queue in new.connections.items()
        if (before := old.connections.get(name)) is not None
    }
    queues = {**new.connections, **fixed}
    ledger = new.ledger.model_copy(update={"root": old.ledger.root})
    kept = new.model_copy(update={"store": old.store, "ledger": ledger, "queues": queues})
    problem = first_problem(kept)
    if problem is not None:
        raise ConfigError(f"With the store as it was: {problem.text}", advice=problem.advice)
    return kept, sorted(_differing(new, kept))


def _kept(new: QueueConfig, before: QueueConfig, *, is_same_kind: bool) -> QueueConfig:
    """`new` on the server of `before`."""
    if not is_same_kind:
        # Its other settings are those of its kind.
        return before
    differing = [key for key in _SERVER if getattr(new, key) != getattr(before, key)]
    return new.model_copy(update={key: getattr(before, key) for key in differing})


def _kind(config: Config, queue: QueueConfig) -> str:
    return queue.kind or config.store.dialect


def _differing(new: Config, kept: Config) -> Iterator[str]:
    for name, field in type(new.store).model_fields.items():
        if getattr(new.store, name) != getattr(kept.store, name):
            yield f"store.{field.alias or name}"
    if new.ledger.root != kept.ledger.root:
        yield "ledger.root"
    for name, queue in new.connections.items():
        before = kept.connections[name]
        if queue.kind != before.kind and _kind(new, queue) != _kind(kept, before):
            yield f"queues.{name}.kind"
        for key in _SERVER:
            if getattr(queue, key) != getattr(before, key):
                yield f"queues.{name}.{key}"
