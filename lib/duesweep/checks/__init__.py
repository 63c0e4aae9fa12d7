"""Facts, what is expected of them, and findings that say the difference. No I/O.

`stores`, `queues` and `doctor` gather the facts.
"""
