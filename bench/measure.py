"""The results of a benchmark: figures, the CPU behind them, and the table of all results."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
# The exit code where a server is missing.
NOT_RUN = 2
_WIDTH = 170
_WHOLE_FROM = 1_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU of the database server, of Python and of the JVM: seconds, or microseconds a message."""

    server: float = 0.0
    python: float = 0.0
    jvm: float = 0.0

    def __sub__(self, earlier: "Cpu") -> "Cpu":
        return Cpu(*(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(Cpu)))

    def for_each(self, messages: int) -> "Cpu":
        """Microseconds for each message."""
        return Cpu(*(getattr(self, f.name) / messages * 1e6 for f in fields(Cpu)))

    @property
    def total(self) -> float:
        """The sum."""
        return self.server + self.python + self.jvm


@dataclass(frozen=True, slots=True)
class Faults:
    """Messages that are not where they belong.

    `lost`: due, but not in their queue. `doubled`: in their queue more than once, or also in the
    store, or in a wrong queue. `early`: not due, but gone from the store or in a queue.
    """

    lost: int = 0
    doubled: int = 0
    early: int = 0

    def __add__(self, other: "Faults") -> "Faults":
        return Faults(
            self.lost + other.lost, self.doubled + other.doubled, self.early + other.early
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table: the median of `values`, one for each round.

    `ratio` is that to `peer`, the median of the rounds' ratios; below `enough` the run has failed.
    `cpu` is in microseconds a message. `faults`: of all rounds; None if messages are not counted.
    """

    name: str
    values: tuple[float, ...]
    unit: str
    peer: str = ""
    ratio: float | None = None
    enough: float | None = None
    cpu: Cpu | None = None
    faults: Faults | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The median."""
        return median(self.values)

    @property
    def is_good(self) -> bool:
        """Whether no message is lost, doubled or early, and the ratio is enough."""
        is_enough = self.enough is None or (self.ratio or 0.0) >= self.enough
        return is_enough and self.faults in {None, Faults()}


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' ratios. Rounds that only one of both has do not count."""
    return round(median(a / b for a, b in zip(ours, theirs, strict=False)), 2)


def median_cpu(each: Sequence[Cpu]) -> Cpu:
    """The medians, by kind of process."""
    return Cpu(*(round(median(getattr(one, f.name) for one in each), 1) for f in fields(Cpu)))


def write(name: str, figures: Sequence[Figure]) -> None:
    """Keep the figures of a benchmark, until it runs again."""
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }
    content = {"machine": machine, "figures": [asdict(each) for each in figures]}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def show(names: Sequence[str]) -> None:
    """Print one table of the last results of these benchmarks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table("", "figure")
    for title in ("median", "from … to", "of the peer", "µs of CPU a message"):
        table.add_column(title, justify="right")
    for title in ("lost, doubled, early", "note"):
        table.add_column(title)
    for name in names:
        file = RESULTS / f"{name}.json"
        if file.exists():
            content = json.loads(file.read_text(encoding="utf-8"))
            for number, figure in enumerate(map(_read, content["figures"])):
                table.add_row("" if number else name, *_cells(figure))
            table.add_section()
    console.print(table)
    console.print("µs of CPU: server, Python, JVM = all")


def _read(content: dict[str, Any]) -> Figure:
    cpu, faults = content.pop("cpu"), content.pop("faults")
    values = tuple(content.pop("values"))
    return Figure(
        values=values, cpu=cpu and Cpu(**cpu), faults=faults and Faults(**faults), **content
    )


def _cells(figure: Figure) -> Sequence[str]:
    def text(value: float) -> str:
        return f"{value:,.0f}" if value >= _WHOLE_FROM else f"{value:,.4g}"

    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f} of {figure.peer}"
    if figure.enough is not None:
        ratio += f" (at least {figure.enough:g})"
    cpu, faults = figure.cpu, figure.faults
    spread = f"{text(min(figure.values))} … {text(max(figure.values))}"
    return (
        figure.name,
        f"{text(figure.value)} {figure.unit}",
        spread if len(figure.values) > 1 else "",
        ratio,
        f"{cpu.server:.0f}, {cpu.python:.0f}, {cpu.jvm:.0f} = {cpu.total:.0f}" if cpu else "",
        f"{faults.lost}, {faults.doubled}, {faults.early}" if faults else "",
        figure.note,
    )


def say(text: str) -> None:
    """Report the current step."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    is_java: bool
    own: float
    ended_children: float


def cpu_now(server: int | None, *, with_jvm: bool = True) -> Cpu:
    """The CPU times until now of this process, its descendants and the server with this id. None: a
    server elsewhere, of which nothing is known. Without the JVM and its descendants in runs that do
    not use it: its idle Python workers end, and their CPU time is lost with them.

    A process counts with its children that have ended. So a backend of the server that ended during
    the run counts as the server, and a Python worker that the JVM started as Python; so does a JVM
    whose command has ended.
    """
    processes = _read_processes()
    of_server = set() if server is None else _tree(server, processes)
    server_seconds = sum(processes[pid].own + processes[pid].ended_children for pid in of_server)
    python = jvm = 0.0
    own = _tree(os.getpid(), processes) - of_server
    if not with_jvm:
        jvms = [pid for pid in own if processes[pid].is_java]
        own = own.difference(*(_tree(pid, processes) for pid in jvms))
    for pid in own:
        process = processes[pid]
        if process.is_java:
            jvm += process.own
        else:
            python += process.own
        python += process.ended_children
    return Cpu(server_seconds, python, jvm)


def _tree(root: int, processes: dict[int, _Process]) -> set[int]:
    tree, size = {root} & processes.keys(), 0
    while len(tree) > size:
        size = len(tree)
        tree |= {pid for pid, process in processes.items() if process.parent in tree}
    return tree


def _read_processes() -> dict[int, _Process]:
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # it has just ended
        # The name, in parentheses, may hold spaces: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
        name, _, rest = text.partition("(")[2].rpartition(")")
        values = rest.split()
        user, system, children_user, children_system = (int(value) for value in values[11:15])
        found[int(folder.name)] = _Process(
            parent=int(values[1]),
            is_java=name == "java",
            own=(user + system) / _TICKS_PER_SECOND,
            ended_children=(children_user + children_system) / _TICKS_PER_SECOND,
        )
    return found
