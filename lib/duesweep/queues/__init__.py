"""Queues: where messages go. `base` is the contract; one file per kind."""
