"""Cuts what is due into slices.

A plan is a hint: its slices are not read in one snapshot, so the claim tests everything again.
"""

from duesweep.core.policy import BatchLimits, Slicing
from duesweep.stores.base import DriverSession
from duesweep.stores.values import Slices, SweepRun


def plan_slices(session: DriverSession, run: SweepRun, slices: int, limits: BatchLimits) -> Slices:
    """At most `slices` slices of equal size over what is eligible now; fewer if some would get less
    than a batch.
    """
    return session.plan(run, Slicing(slices, least_rows=limits.rows))
