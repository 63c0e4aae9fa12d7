"""The SQL Server transport's delayed table as a store, and the journal beside it."""
