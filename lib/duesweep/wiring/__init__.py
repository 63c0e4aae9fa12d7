"""Configuration to adapters; the only place that knows which adapter a setting means."""

from duesweep.wiring.installing import Installer, installer
from duesweep.wiring.parts import handover_parts, ledger_root, parts, queue, store

__all__ = ["Installer", "handover_parts", "installer", "ledger_root", "parts", "queue", "store"]
