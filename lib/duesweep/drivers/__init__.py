"""Database drivers, each imported by one file only; their errors are mapped here, at the edge."""
