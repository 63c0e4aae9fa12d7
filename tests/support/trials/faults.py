"""The faults: the harms to a sweep, and their moments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from support.trials.harmful_proxy import Harm, When
from support.trials.points import WHEN
from support.trials.world import (
    BROKER,
    ONE_DATABASE,
    OTHER_DATABASE,
    PLACES,
    POOLED,
    SQL_SERVER,
)

IN_PROCESS, SPARK = "in-process", "spark"
ENGINES = (IN_PROCESS, SPARK)

WRITE_ERRORS = "LedgerTables.write(errors)"
WRITE_RETRIES = "LedgerTables.write(retries)"
CREATE_RETRIES = "LedgerTables.create(retries)"
# By stage, the methods that have crash points (`points.py`), before and after. A point of the
# careful form of a batch is also a point of the moved form.
STAGES = {
    "plan": ("Sweeps.open", "Due.plan"),
    "claim": ("TaskSession.claim",),
    "deliver": ("QueueSession.deliver", "QueueSession.confirm"),
    "finish": ("TaskSession.finish",),
    "commit": ("COMMIT of TaskSession.transaction", "QueueSession.commit"),
    "close": ("TaskSession.end_slice", "Sweeps.close"),
    "settle": (
        *("Journal.seal", "LedgerTables.write(tombstones)", WRITE_ERRORS),
        *(WRITE_RETRIES, "LedgerTables.write(sweeps)", "Journal.delete_settled"),
    ),
    "first ledger": (
        *("LedgerTables.create(tombstones)", CREATE_RETRIES, "LedgerTables.create(errors)"),
        *("LedgerTables.create(sweeps)", "SourceBinding.bind"),
        "LedgerTables.set_properties(tombstones)",
    ),
}
# Reached by the process that dispatches a slice: on Spark by its workers.
TASK_STAGES = ("claim", "deliver", "finish", "commit")
BATCH_POINTS = {name for stage in TASK_STAGES for name in STAGES[stage]}
TASK_POINTS = BATCH_POINTS | {"TaskSession.end_slice"}
_PLACES_OF_POINTS = {"QueueSession.confirm": (BROKER,), "QueueSession.commit": (OTHER_DATABASE,)}

UNFORESEEN = "unexpected error"
KILL = "SIGKILL of the driver"
TERMINATE = "SIGTERM of the driver"
INTERRUPT = "SIGINT of the driver"
JVM = "SIGKILL of the JVM"
WORKER = "SIGKILL of a Python worker"
SESSIONS = "database ends its sessions"
RESTART = "database stopped at once and started"
STOP = "database stopped at once"
QUEUE_CRASH = "queues' server stopped at once and started"
BROKER_KILL = "broker killed and started"
BROKER_CUT = "broker closes its connections"
DISK_FULL = "disk of the ledger full"
READ_ONLY = "ledger cannot be written"
HALF_DELETED = "ledger half deleted"
POWER = "power failure of the driver's machine"
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
    the connection of `side`, `when` the COMMIT passes (a broker: publications).
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


_POSTGRESQL = (ONE_DATABASE, OTHER_DATABASE, BROKER, POOLED)
# A proxy leads around a pooler.
_DIRECT = tuple(place for place in PLACES if place != POOLED)
# A trial's own server of SQL Server is not there to be stopped: the tests' is used.
_WITH_MOVER = (ONE_DATABASE, OTHER_DATABASE, SQL_SERVER, POOLED)


def points(stage: str, place: str) -> Sequence[str]:
    """The points of a stage that a sweep of this place reaches."""
    return [
        f"{when} {name}"
        for name in STAGES[stage]
        if place in _PLACES_OF_POINTS.get(name, PLACES)
        for when in WHEN
    ]


def _all() -> Sequence[Fault]:
    crashes = product((UNFORESEEN, KILL, TERMINATE, INTERRUPT), STAGES)
    sides = ((STORE, _DIRECT), (QUEUE, (OTHER_DATABASE, BROKER)))
    return [
        *(Fault(harm, stage) for harm, stage in crashes),
        *(Fault(JVM, stage, (SPARK,)) for stage in ("plan", "claim", "commit", "settle")),
        *(Fault(WORKER, stage, (SPARK,)) for stage in TASK_STAGES),
        *(
            Fault(harm, stage, places=places)
            for harm, places in ((SESSIONS, PLACES), (RESTART, _POSTGRESQL), (STOP, _POSTGRESQL))
            for stage in ("claim", "commit", "settle")
        ),
        *(
            Fault(QUEUE_CRASH, stage, places=(OTHER_DATABASE,))
            for stage in ("deliver", "commit", "close", "settle")
        ),
        *(Fault(BROKER_CUT, stage, places=(BROKER,)) for stage in ("deliver", "commit")),
        Fault(BROKER_KILL, "deliver", places=(BROKER,)),
        *(Fault(DISK_FULL, stage) for stage in ("close", "settle")),
        # The JVM's own files would need a watch too.
        *(Fault(POWER, stage, (IN_PROCESS,)) for stage in ("close", "settle", "first ledger")),
        # Not while it settles: the lock file is open then, and the system refuses.
        *(Fault(READ_ONLY, stage) for stage in ("claim", "close")),
        *(Fault(h, s) for h in (HALF_DELETED, OTHER_LEDGER) for s in ("plan", "close", "settle")),
        *(Fault(clock, engines=(IN_PROCESS,)) for clock in CLOCKS),
        *(Fault(CROWD, engines=(IN_PROCESS,), places=_WITH_MOVER) for _ in range(3)),
        *(
            Fault(harm, places=places, side=side, when=when)
            for side, places in sides
            for harm in Harm
            for when in When
            # It continues all the time.
            if harm is not Harm.DRIP or when is When.IN
        ),
    ]


FAULTS = _all()
