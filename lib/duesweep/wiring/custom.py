"""Custom stores: `store.kind = "package.module:Class"`."""

from collections.abc import Callable, Sequence
from importlib import import_module  # noqa: TID251 - `store.kind` may name a class

from duesweep.config import Config
from duesweep.core.errors import ConfigError, type_name
from duesweep.stores.base import Store, StoreSettings
from duesweep.wiring.dialects import timeouts_of

_PROPERTIES = ("source", "own_queue")
_METHODS = (
    "initialise",
    "open_task",
    "open_driver",
    "open_messages",
    "set_up_infrastructure",
    "operators",
)


def store(config: Config) -> Store:
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
        lacking = _find_missing(made)
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
        # Only the name of a missing module, never the error's text.
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
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


def _find_missing(made: object) -> Sequence[str]:
    return [
        *(name for name in _PROPERTIES if not hasattr(made, name)),
        *(name for name in _METHODS if not callable(getattr(made, name, None))),
    ]
