"""duesweep sweeps due delayed messages of NServiceBus endpoints to their queues, with Spark.

The way through the code is one sentence: :mod:`duesweep.sweep` plans, dispatches and settles.
"""

__version__ = "0.1.0"
