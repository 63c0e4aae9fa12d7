"""The MSMQ transport's delayed message store, a table in SQL Server, as a store."""
