"""`duesweep doctor`: asks a configuration's services; says what is wrong, and what to do.

Rules are functions from facts to findings: those of Spark in `spark.py`, all others in `checks`.
"""
