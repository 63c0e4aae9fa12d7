"""Plan, dispatch, settle: `sweep.py` is one sweep, top to bottom."""
