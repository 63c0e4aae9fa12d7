"""One process that sweeps as messages come due, for as long as it is let."""
