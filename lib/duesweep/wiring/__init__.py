"""Makes adapters from the configuration. Only this package knows which adapter a setting means."""

from duesweep.wiring.context import handover_context, ledger_root, queue, store, sweep_context
from duesweep.wiring.installing import Installer, installer

__all__ = [
    "Installer",
    "handover_context",
    "installer",
    "ledger_root",
    "queue",
    "store",
    "sweep_context",
]
