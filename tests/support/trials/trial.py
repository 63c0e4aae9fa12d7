"""A trial: which fault meets which sweep, all of it from a seed."""

import random
from collections.abc import Container
from dataclasses import dataclass

from support.trials.faults import (
    BATCH_POINTS,
    CREATE_RETRIES,
    FAULTS,
    IN_PROCESS,
    SPARK,
    TASK_POINTS,
    WORKER,
    WRITE_ERRORS,
    WRITE_RETRIES,
    Fault,
    points,
)
from support.trials.world import SHARED_TRANSACTION, SQL_SERVER

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
    # How many slices the sweep has at once.
    slices: int

    def __str__(self) -> str:
        at = "" if self.point is None else f", {self.point} ({self.occurrence})"
        many = f"{self.slices} slices" if self.slices > 1 else "1 slice"
        ran = f"{self.engine}, {many}, {self.writer}"
        return f"seed {self.seed}: {self.fault}{at}; {self.place}; {ran}"

    @property
    def has_mover(self) -> bool:
        """Whether NServiceBus's mover runs next to the harmed sweep. It would take bad messages."""
        return self.place == SQL_SERVER and self.point is not None and not self.has_bad

    @property
    def bound(self) -> int:
        """How many messages each cut of this sweep may double."""
        return 0 if self.place in SHARED_TRANSACTION else self.batch_rows * self.slices


def draw(seed: int, places: Container[str]) -> Trial:
    """The trial of a seed. Seeds that follow each other take the faults in turn. A seed means the
    same again only with the same `places`.
    """
    rng = random.Random(seed)
    possible = [fault for fault in FAULTS if any(one in places for one in fault.places)]
    fault = possible[seed % len(possible)]
    place = rng.choice([one for one in fault.places if one in places])
    engine, writer = _engine(rng, fault)
    point = None
    if fault.stage is not None:
        of_stage = points(fault.stage, place)
        point = rng.choice([one for one in of_stage if _fits(fault, one)])
    name = _name(point)
    # Without bad messages, batches run in the moved form.
    has_bad = rng.random() < 0.6 or name in {WRITE_ERRORS, WRITE_RETRIES, CREATE_RETRIES}
    max_attempts, back_off = rng.choice([(1, 0), (2, 0), (3, _BACK_OFF_SECONDS)])
    if name == WRITE_ERRORS:
        max_attempts = 1
    elif name == WRITE_RETRIES:
        max_attempts = 3
    is_counted = name in BATCH_POINTS or fault.side is not None
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
        slices=2 if engine == SPARK else rng.choice([1, 2]),
    )


def _engine(rng: random.Random, fault: Fault) -> tuple[str, str]:
    is_spark = SPARK in fault.engines and rng.random() < _SPARK_SHARE
    if IN_PROCESS in fault.engines and not is_spark:
        return IN_PROCESS, DELTA_RS
    return SPARK, rng.choice([DELTA_RS, SPARK])


def _fits(fault: Fault, point: str) -> bool:
    return fault.harm != WORKER or _name(point) in TASK_POINTS


def _name(point: str | None) -> str:
    return (point or "").partition(" ")[2]
