"""How fast whole sweeps are, compared with their peers and in many sizes."""

import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import measure
from bed import DATABASE, DUES, Bed, Load, config_of, open_server
from measure import Cpu, Faults, Figure, say
from peers import move, move_at_once, plain_processes, receive_all
from sweeps import (
    IN_PROCESS,
    ON_SPARK,
    STAGE_OF,
    STAGES,
    WarmSession,
    sweep_from_shell,
    sweep_in_process,
)

_MOVER = "NServiceBus, first hop"
_WARM, _COLD = "duesweep, warm", "duesweep, cold"
_WARM_UP_ROWS = 50_000
_DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
_DEADLOCKS, _PEAK_MB = "deadlocks", "MB at the peak"

# The measured action. It returns its numbers: the seconds of its steps, deadlocks, or a peak.
Measured = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Contender:
    """One of the programs to compare. `prepare` is not measured; the action that it returns is.
    `is_slow`: it runs in the first round only.
    """

    name: str
    prepare: Callable[[], Measured]
    is_first_hop: bool = False
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contender."""

    seconds: float
    cpu: Cpu
    faults: Faults
    told: dict[str, float] = field(default_factory=dict)


def _measured(bed: Bed, contender: Contender, *, with_jvm: bool) -> Run:
    bed.reset()
    action = contender.prepare()
    before, started = measure.cpu_now(bed.server_pid, with_jvm=with_jvm), time.monotonic()
    told = action()
    seconds = time.monotonic() - started
    cpu = measure.cpu_now(bed.server_pid, with_jvm=with_jvm) - before
    faults = bed.count(is_first_hop=contender.is_first_hop)
    say(f"{contender.name}: {seconds:.1f} s, {bed.rows / seconds:,.0f} rows/s, {faults}")
    return Run(seconds, cpu.for_each(bed.rows), faults, told)


def _figure(
    name: str, rows: int, runs: Sequence[Run], *, peers: Sequence[Run] = (), note: str = ""
) -> Figure:
    rates = [rows / run.seconds for run in runs]
    return Figure(
        name,
        tuple(round(rate) for rate in rates),
        "rows/s",
        peer="the mover" if peers else "",
        ratio=measure.ratio_of(rates, [rows / run.seconds for run in peers]) if peers else None,
        cpu=measure.median_cpu([run.cpu for run in runs]),
        faults=sum((run.faults for run in runs), Faults()),
        note=note or _note(runs),
    )


def _note(runs: Sequence[Run]) -> str:
    told = [run.told for run in runs]
    if all(_DEADLOCKS in each for each in told):
        return f"{sum(each[_DEADLOCKS] for each in told):.0f} deadlocks in {len(runs)} runs"
    if all(_PEAK_MB in each for each in told):
        return f"{max(each[_PEAK_MB] for each in told):.0f} {_PEAK_MB}"
    if not all(each.keys() & STAGE_OF.keys() for each in told):
        return ""
    shares = []
    for stage in STAGES:
        names = [name for name, of in STAGE_OF.items() if of == stage]
        each = [sum(run.told.get(name, 0.0) for name in names) / run.seconds for run in runs]
        shares.append(f"{stage} {median(each):.0%}")
    return ", ".join(shares)


def _options_of_both(parser: ArgumentParser) -> None:
    parser.add_argument("--only", default="", help="contenders with this in the name")
    parser.add_argument("--dsn", help=f"of a database {DATABASE} elsewhere; it is emptied")
    parser.add_argument("--ledger", help="a root for the ledger that a cluster can reach")


def throughput_options(parser: ArgumentParser) -> None:
    """Options of `bench/run throughput`."""
    _options_of_both(parser)
    parser.add_argument("--rows", type=int, default=100_000, help="how many due rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--dues", choices=DUES, default="in order", help="how they lie in the table"
    )
    parser.add_argument("--durable", action="store_true", help="fsync and the like are on")


def throughput(options: Namespace, folder: Path) -> list[Figure]:
    """All contenders alternately, on one server with the same rows."""
    durability = _DURABLE if options.durable else {}
    with open_server(folder, options.dsn, **durability) as dsn:
        file = folder / "duesweep.toml"
        config = config_of(file, dsn, options.ledger or str(folder / "ledger"))
        bed = Bed(file, config, Load(options.rows, dues=options.dues))
        say(f"loading {options.rows:,} due rows")
        bed.prepare()
        say("starting and warming a Spark session")
        session = WarmSession()
        bed.reset(_WARM_UP_ROWS)
        session.sweep(config)
        contenders = [
            contender
            for contender in _contenders(bed, session)
            if contender.name == _MOVER or options.only in contender.name
            # These need a ledger in a local folder.
            if not (options.ledger and "in process" in contender.name)
        ]
        runs: dict[str, list[Run]] = defaultdict(list)
        for number in range(options.rounds):
            # Each round starts with another contender, so that the order has no influence.
            start = number % len(contenders)
            for contender in [*contenders[start:], *contenders[:start]]:
                if number == 0 or not contender.is_slow or options.only:
                    run = _measured(bed, contender, with_jvm=contender.name == _WARM)
                    runs[contender.name].append(run)
        settings = ", ".join(f"{name} {value}" for name, value in bed.settings().items())
        say(f"rows of {bed.row_bytes()} bytes, Spark {session.spark_version}; {settings}")
    return [
        _figure(name, options.rows, runs[name], peers=runs[_MOVER])
        for name in (contender.name for contender in contenders)
    ]


def _contenders(bed: Bed, session: WarmSession) -> list[Contender]:
    tables = bed.dsn, bed.delayed, bed.own_queue

    def movers(at_once: int) -> dict[str, float]:
        return {_DEADLOCKS: move_at_once(at_once, *tables)}

    def both_hops() -> None:
        move(*tables)
        receive_all(bed.dsn, bed.own_queue, bed.queues)

    def plain() -> Measured:
        return _silent(plain_processes(bed.dsn, bed.delayed, bed.queues, bed.rows).run)

    def sweep(at_once: int) -> Measured:
        return _silent(partial(sweep_in_process, bed.file, at_once=at_once))

    def cold() -> None:
        sweep_from_shell(bed.file, *ON_SPARK, watches_memory=False)

    return [
        Contender(_MOVER, lambda: _silent(partial(move, *tables)), is_first_hop=True),
        Contender("two of its movers", lambda: partial(movers, 2), is_first_hop=True, is_slow=True),
        Contender(
            "four of its movers", lambda: partial(movers, 4), is_first_hop=True, is_slow=True
        ),
        Contender("NServiceBus, both hops", lambda: _silent(both_hops), is_slow=True),
        Contender("two plain processes", plain),
        Contender(_WARM, lambda: partial(session.sweep, bed.config)),
        Contender("duesweep, in process", lambda: sweep(1)),
        Contender("two sweeps, in process", lambda: sweep(2)),
        Contender(_COLD, lambda: _silent(cold)),
    ]


def _silent(action: Callable[[], object]) -> Measured:
    def measured() -> dict[str, float]:
        action()
        return {}

    return measured


_QUEUES = [f"Queue{number:04}" for number in range(1_000)]
_TWENTY_MILLION = Load(20_000_000, body_bytes=0, made_once=True)


@dataclass(frozen=True, slots=True)
class Case:
    """The stored messages, and the number of slices; 0: as many as cores. `on_spark`: in a warm
    Spark session; False: from the shell without Spark; None: from the shell, as the settings say.
    """

    name: str
    load: Load
    slices: int = 0
    on_spark: bool | None = True


CASES = (
    Case("20,000 due", Load(20_000)),
    Case("200,000 due", Load(200_000)),
    Case("200,000 due and 1,000,000 paused", Load(200_000, paused=1_000_000)),
    Case("2,000,000 due", Load(2_000_000)),
    Case("100,000 due", Load(100_000)),
    Case("100,000 due and 5,000,000 not yet due", Load(100_000, waiting=5_000_000)),
    Case("200,000 due, 1 slice", Load(200_000), slices=1),
    Case("200,000 due, 2 slices", Load(200_000), slices=2),
    Case("200,000 due, 4 slices", Load(200_000), slices=4),
    Case("200,000 due, all with one Due", Load(200_000, dues="one")),
    Case("200,000 due, one destination", Load(200_000, _QUEUES[:1])),
    Case("200,000 due, a thousand destinations", Load(200_000, _QUEUES)),
    Case("200,000 due, no bodies", Load(200_000, body_bytes=0)),
    Case("5,000 due, bodies of 100 kB", Load(5_000, body_bytes=100_000)),
    Case("5,000 due, bodies of 1 MB", Load(5_000, body_bytes=1_000_000)),
    Case("5,000 due, bodies of 1 MB, no Spark", Load(5_000, body_bytes=1_000_000), on_spark=False),
    Case("20,000,000 due, no bodies, no Spark", _TWENTY_MILLION, on_spark=False),
    Case("20,000,000 due, no bodies, from the shell", _TWENTY_MILLION, on_spark=None),
)


def scale_options(parser: ArgumentParser) -> None:
    """Options of `bench/run scale`."""
    _options_of_both(parser)
    parser.add_argument("--rounds", type=int, default=1, help="how often each case runs")


def scale(options: Namespace, folder: Path) -> list[Figure]:
    """Sweeps of many sizes and shapes, on one server."""
    cases = [case for case in CASES if options.only in case.name]
    if not cases:
        sys.exit(f"No case has {options.only!r} in its name")
    # Without Spark the ledger has to be a local folder.
    cases = [case for case in cases if case.on_spark or not options.ledger]
    session = WarmSession()
    with open_server(folder, options.dsn) as dsn:

        def bed_of(case: Case) -> Bed:
            root = options.ledger or str(folder / "ledger")
            file = folder / "duesweep.toml"
            return Bed(file, config_of(file, dsn, root, sweep={"slices": case.slices}), case.load)

        first = Case("warm-up", Load(_WARM_UP_ROWS))
        _sweep_case(first, 1, bed_of(first), session=session)
        return [_sweep_case(case, options.rounds, bed_of(case), session=session) for case in cases]


def _sweep_case(case: Case, rounds: int, bed: Bed, *, session: WarmSession) -> Figure:
    bed.prepare()

    def sweep() -> dict[str, float]:
        if case.on_spark:
            return session.sweep(bed.config)
        options = () if case.on_spark is None else IN_PROCESS
        return {_PEAK_MB: sweep_from_shell(bed.file, *options).peak_mb}

    runs, held = [], []
    for _ in range(rounds):
        with bed.watching_journal() as most_held:
            runs.append(_measured(bed, Contender(case.name, lambda: sweep), with_jvm=True))
        held += most_held
        if bed.waiting() != case.load.left:
            raise RuntimeError(f"{bed.waiting()} of {case.load.left} wait")
    note = f"{_note(runs)}; at most {max(held):,} in the journal"
    return _figure(case.name, bed.rows, runs, note=note)
