"""Queues, where messages go. `base` is the contract; each kind has a file."""
