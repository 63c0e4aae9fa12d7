"""Stores that fail, sweeps in processes of their own, and what else does harm."""
