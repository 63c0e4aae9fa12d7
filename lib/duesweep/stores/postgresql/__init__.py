"""The PostgreSQL transport's delayed table as a store, and the journal beside it."""
