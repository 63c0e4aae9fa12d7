"""Looks after a source's journal and its ledger: the command `maintain`."""
