"""Delayed tables on SQL Server as stores, and the journal beside them."""
