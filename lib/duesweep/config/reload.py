"""Which settings of a running watcher a changed configuration may change."""

from collections.abc import Iterator

from duesweep.config.model import Config


def keep_fixed(new: Config, old: Config) -> tuple[Config, list[str]]:
    """`new` with what a process keeps of `old`, and the names of those settings that differ: the
    store, the ledger's root, and where queues are.
    """
    queues = {
        name: queue.model_copy(update={"dsn": before.dsn, "url": before.url})
        if (before := old.queues.get(name)) is not None
        else queue
        for name, queue in new.queues.items()
    }
    ledger = new.ledger.model_copy(update={"root": old.ledger.root})
    kept = new.model_copy(update={"store": old.store, "ledger": ledger, "queues": queues})
    return kept, sorted(_differing(new, kept))


def _differing(new: Config, kept: Config) -> Iterator[str]:
    for name, field in type(new.store).model_fields.items():
        if getattr(new.store, name) != getattr(kept.store, name):
            yield f"store.{field.alias or name}"
    if new.ledger.root != kept.ledger.root:
        yield "ledger.root"
    for name, queue in new.queues.items():
        for key in ("dsn", "url"):
            if getattr(queue, key) != getattr(kept.queues[name], key):
                yield f"queues.{name}.{key}"
