"""What `duesweep demo` shows a sweep on: a folder, a PostgreSQL server, and messages."""
