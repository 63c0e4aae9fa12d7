"""The demonstration: a real PostgreSQL, 20,000 delayed messages, two sweeps."""
