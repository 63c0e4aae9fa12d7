"""The faults: what is done to a sweep, and at which moments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from support.trials.harmful_proxy import Harm, When
from support.trials.world import BROKER, OTHER_DATABASE, PLACES

IN_PROCESS, SPARK = "in-process", "spark"
ENGINES = (IN_PROCESS, SPARK)

# By stage, the crash points of `points.py`; each is reached before and after.
STAGES = {
    "plan": ("open", "plan"),
    "claim": ("claim",),
    "deliver": ("deliver", "confirm"),
    "finish": ("finish",),
    "commit": ("commit", "queue's commit"),
    "close": ("end of slice", "close"),
    "settle": (
        *("seal", "append to tombstones", "append to errors", "append to retries"),
        *("append to sweeps", "delete journal"),
    ),
    "first ledger": (
        *("create tombstones", "create retries", "create errors", "create sweeps", "bind"),
    ),
}
# Reached by whoever dispatches a slice: on Spark by its workers.
TASK_STAGES = ("claim", "deliver", "finish", "commit")
TASK_POINTS = {point for stage in TASK_STAGES for point in STAGES[stage]} | {"end of slice"}
_PLACES_OF_POINTS = {"confirm": (BROKER,), "queue's commit": (OTHER_DATABASE,)}

UNFORESEEN = "unforeseen error"
KILL = "SIGKILL of the driver"
TERMINATE = "SIGTERM of the driver"
INTERRUPT = "SIGINT of the driver"
JVM = "SIGKILL of the JVM"
WORKER = "SIGKILL of a Python worker"
SESSIONS = "database ends its sessions"
RESTART = "database stopped at once and started"
STOP = "database stopped at once"
BROKER_KILL = "broker killed and started"
BROKER_CUT = "broker closes its connections"
DISK_FULL = "disk of the ledger full"
READ_ONLY = "ledger cannot be written"
HALF_DELETED = "ledger half deleted"
OTHER_LEDGER = "ledger replaced by another one"
CLOCK_AHEAD = "driver's clock an hour ahead"
CLOCK_BEHIND = "driver's clock an hour behind"
CROWD = "two sweeps, a loop of sweeps and a mover, each killed at random"
LEDGER_HARMS = {DISK_FULL, READ_ONLY, HALF_DELETED, OTHER_LEDGER}
CLOCKS = {CLOCK_AHEAD: "+1h", CLOCK_BEHIND: "-1h"}

STORE, QUEUE = "store", "queue"


@dataclass(frozen=True, slots=True)
class Fault:
    """`harm` is done at one of the points of `stage`. A proxy's harm has no stage: it is done to
    the connection of `side`, `when` the COMMIT passes (a broker: what is published).
    """

    harm: str | Harm
    stage: str | None = None
    engines: tuple[str, ...] = ENGINES
    places: tuple[str, ...] = PLACES
    side: str | None = None
    when: When | None = None

    def __str__(self) -> str:
        if self.side is not None:
            what = f"{Harm(self.harm).value}: connection to the {self.side}"
            return f"{what}, {When(self.when).value} COMMIT or confirm"
        return str(self.harm) if self.stage is None else f"{self.harm}, {self.stage}"


_POSTGRESQL = PLACES[:3]


def points(stage: str, place: str) -> Sequence[str]:
    """The points of a stage that a sweep of this place reaches."""
    return [
        f"{when} {point}"
        for point in STAGES[stage]
        if place in _PLACES_OF_POINTS.get(point, PLACES)
        for when in ("before", "after")
    ]


def _all() -> Sequence[Fault]:
    crashes = product((UNFORESEEN, KILL, TERMINATE, INTERRUPT), STAGES)
    sides = ((STORE, _POSTGRESQL), (QUEUE, (OTHER_DATABASE, BROKER)))
    return [
        *(Fault(harm, stage) for harm, stage in crashes),
        *(Fault(JVM, stage, (SPARK,)) for stage in ("plan", "claim", "commit", "settle")),
        *(Fault(WORKER, stage, (SPARK,)) for stage in TASK_STAGES),
        *(
            Fault(harm, stage, places=_POSTGRESQL)
            for harm in (SESSIONS, RESTART, STOP)
            for stage in ("claim", "commit", "settle")
        ),
        *(Fault(BROKER_CUT, stage, places=(BROKER,)) for stage in ("deliver", "commit")),
        Fault(BROKER_KILL, "deliver", places=(BROKER,)),
        *(Fault(DISK_FULL, stage) for stage in ("close", "settle")),
        # Not while it settles: the lock file is open then, and the system refuses.
        *(Fault(READ_ONLY, stage) for stage in ("claim", "close")),
        *(Fault(h, s) for h in (HALF_DELETED, OTHER_LEDGER) for s in ("plan", "close", "settle")),
        *(Fault(clock, engines=(IN_PROCESS,)) for clock in CLOCKS),
        *(Fault(CROWD, engines=(IN_PROCESS,), places=_POSTGRESQL[:2]) for _ in range(3)),
        *(
            Fault(harm, places=places, side=side, when=when)
            for side, places in sides
            for harm in Harm
            for when in When
            # It goes on all the time.
            if harm is not Harm.DRIP or when is When.IN
        ),
    ]


FAULTS = _all()
