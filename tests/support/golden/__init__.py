"""Outputs that were recorded once, and are compared after that (docs/testing.md)."""
