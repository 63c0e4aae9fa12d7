"""Stores that users bring: `store.kind = "package.module:Class"`."""

from importlib import import_module

from duesweep.config import Config
from duesweep.errors import ConfigError
from duesweep.stores.base import Store
from duesweep.stores.values import StoreSettings


def store(config: Config) -> Store:
    """An instance of the class that `store.kind` names, made from the settings of its section."""
    settings = config.store
    module_name, _, class_name = settings.kind.partition(":")
    try:
        made = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"store.kind is {settings.kind!r}, which cannot be imported ({error}); put its package "
            "on PYTHONPATH, on every executor too (--py-files)"
        ) from error
    try:
        brought: Store = made(
            StoreSettings(
                dsn=settings.dsn.get_secret_value(),
                endpoint=settings.endpoint,
                name=settings.name,
                schema=settings.db_schema,
                delayed_table=settings.delayed_table,
                batch_bytes=config.sweep.batch_bytes,
                options=settings.options,
            )
        )
    except TypeError as error:
        raise ConfigError(
            f"{settings.kind} cannot be made from a StoreSettings: {error}; see docs/stores.md"
        ) from error
    lacking = [
        name
        for name in ("source", "own_queue", "initialise", "open_task", "open_driver")
        if not hasattr(brought, name)
    ]
    if lacking:
        raise ConfigError(
            f"{settings.kind} is no store: it lacks {', '.join(lacking)}; see docs/stores.md"
        )
    return brought
