"""Compares store, journal and ledger of a source: the command `audit`."""
