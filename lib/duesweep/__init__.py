"""duesweep sweeps due delayed messages of NServiceBus endpoints to their queues, with Spark.

Start reading at :mod:`duesweep.sweep.sweep`: it plans, dispatches and settles. For Python:
`Duesweep(load_config("duesweep.toml")).sweep()`; see docs/python.md.
"""

from importlib import import_module  # noqa: TID251 - public names, late
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duesweep.core.change import DueSpan, MessageFilter
    from duesweep.core.errors import DuesweepError
    from duesweep.core.exhausted import ErrorFilter
    from duesweep.core.times import Moment
    from duesweep.operations.duesweep import Duesweep, load_config

__all__ = [
    "DueSpan",
    "Duesweep",
    "DuesweepError",
    "ErrorFilter",
    "MessageFilter",
    "Moment",
    "load_config",
]
__version__ = "1.0.0"

# The module of each name. Imported when it is used: the command line needs none of them.
_MODULES = {
    "DueSpan": "duesweep.core.change",
    "Duesweep": "duesweep.operations.duesweep",
    "DuesweepError": "duesweep.core.errors",
    "ErrorFilter": "duesweep.core.exhausted",
    "MessageFilter": "duesweep.core.change",
    "Moment": "duesweep.core.times",
    "load_config": "duesweep.operations.duesweep",
    # For `core.result`.
    "arrow": "duesweep.report.results",
    "document": "duesweep.report.results",
    "html": "duesweep.report.results",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
