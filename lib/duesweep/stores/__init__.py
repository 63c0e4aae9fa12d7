"""Stores: where delayed messages wait. `base` is the contract; one file per store."""
