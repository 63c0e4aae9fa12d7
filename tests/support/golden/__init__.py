"""Outputs that were recorded once, and are compared from then on (docs/testing.md)."""
