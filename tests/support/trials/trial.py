"""A trial: which fault meets which sweep, all of it from a seed."""

import random
from collections.abc import Container
from dataclasses import dataclass

from support.trials.faults import (
    FAULTS,
    IN_PROCESS,
    SPARK,
    TASK_POINTS,
    WORKER,
    Fault,
    points,
)
from support.trials.world import SHARED_TRANSACTION

DELTA_RS = "delta-rs"
# Spark costs ten times as much as this process.
_SPARK_SHARE = 0.12
_BACK_OFF_SECONDS = 3_600


@dataclass(frozen=True, slots=True)
class Trial:
    """A fault, and the sweep that it meets. `point` None: the fault needs none."""

    seed: int
    fault: Fault
    place: str
    engine: str
    writer: str
    batch_rows: int
    max_attempts: int
    back_off_seconds: int
    has_bad: bool
    has_error_queue: bool
    point: str | None
    occurrence: int

    def __str__(self) -> str:
        at = "" if self.point is None else f", {self.point} ({self.occurrence})"
        return f"seed {self.seed}: {self.fault}{at}; {self.place}; {self.engine}, {self.writer}"

    @property
    def slices(self) -> int:
        """How many tasks the sweep has at once."""
        return 2 if self.engine == SPARK else 1

    @property
    def bound(self) -> int:
        """How many messages each cut of this sweep may double."""
        return 0 if self.place in SHARED_TRANSACTION else self.batch_rows * self.slices


def draw(seed: int, places: Container[str]) -> Trial:
    """The trial of a seed. Seeds that follow each other take the faults in turn. A seed means the
    same again only with the same `places`.
    """
    rng = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    place = rng.choice([one for one in fault.places if one in places])
    engine, writer = _engine(rng, fault)
    point = None
    if fault.stage is not None:
        of_stage = points(fault.stage, place)
        point = rng.choice([one for one in of_stage if _fits(fault, one)])
    # Without bad messages, batches run in the short form.
    has_bad = rng.random() < 0.6 or point in {f"{w} append to errors" for w in ("before", "after")}
    has_bad = has_bad or (point or "").endswith("retries")
    max_attempts, back_off = rng.choice([(1, 0), (2, 0), (3, _BACK_OFF_SECONDS)])
    if (point or "").endswith("append to errors"):
        max_attempts = 1
    elif (point or "").endswith("append to retries"):
        max_attempts = 3
    is_counted = (point or "").partition(" ")[2] in TASK_POINTS - {"end of slice"}
    is_counted = is_counted or fault.side is not None
    return Trial(
        seed=seed,
        fault=fault,
        place=place,
        engine=engine,
        writer=writer,
        batch_rows=rng.choice([20, 30, 40]),
        max_attempts=max_attempts,
        back_off_seconds=back_off,
        has_bad=has_bad,
        has_error_queue=rng.random() < 0.3,
        point=point,
        occurrence=rng.randint(1, 3) if is_counted else 1,
    )


def _engine(rng: random.Random, fault: Fault) -> tuple[str, str]:
    is_spark = SPARK in fault.engines and rng.random() < _SPARK_SHARE
    if IN_PROCESS in fault.engines and not is_spark:
        return IN_PROCESS, DELTA_RS
    return SPARK, rng.choice([DELTA_RS, SPARK])


def _fits(fault: Fault, point: str) -> bool:
    return fault.harm != WORKER or point.partition(" ")[2] in TASK_POINTS
