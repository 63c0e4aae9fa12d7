"""Proves on a SQL Server what tests elsewhere cannot: `scripts/prove sqlserver`."""
