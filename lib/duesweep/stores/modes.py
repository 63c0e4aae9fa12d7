"""Which transaction modes a store in a database can honour."""

from duesweep.errors import ConfigError
from duesweep.stores.values import TransactionMode


def refuse_distributed(source: str, mode: TransactionMode) -> None:
    """Raise `ConfigError` for a mode that takes a transaction across servers."""
    if mode == TransactionMode.TRANSACTION_SCOPE:
        raise ConfigError(
            f"store.transaction_mode is {mode.value}, which takes a distributed transaction, and "
            f"{source} cannot enlist in one",
            advice=f"leave the setting out, or set {TransactionMode.RECEIVE_ONLY.value}",
        )
