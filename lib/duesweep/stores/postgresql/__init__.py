"""Delayed tables in PostgreSQL as stores, and the journal beside them."""
