"""Several endpoints in one process."""
