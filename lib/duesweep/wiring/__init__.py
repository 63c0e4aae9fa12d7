"""Configuration to adapters; the only place that knows which adapter a setting means."""

from duesweep.wiring.installing import Installer, installer
from duesweep.wiring.parts import ledger_root, parts, queue, store

__all__ = ["Installer", "installer", "ledger_root", "parts", "queue", "store"]
