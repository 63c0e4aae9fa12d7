"""duesweep sweeps due delayed messages of NServiceBus endpoints to their queues, with Spark.

Start reading at :mod:`duesweep.sweep`: it plans, dispatches and settles.
"""

__version__ = "0.1.0"
