"""Seeded trials: a sweep with one fault, the sweeps that recover from it, and the results."""
