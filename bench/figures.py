"""Turns runs into figures: medians, ratios, a table and JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from cpu import CpuTimes
from rich.console import Console
from rich.table import Table
from sweeps import STAGE_OF, STAGES
from testbed import Count

_WIDTH = 130
DEADLOCKS = "deadlocks"
KINDS = ("server", "python", "jvm", "total")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender. `cpu` are seconds by kind of process. `steps` are the seconds of
    its functions, or how many deadlocks it met, if that is known. `load` is the machine's load at
    the start.
    """

    contender: str
    round: int
    seconds: float
    rows: int
    count: Count
    load: float
    cpu: CpuTimes
    steps: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Due rows for each second of the run."""
        return self.rows / self.seconds

    def cpu_us(self, kind: str) -> float:
        """Microseconds of CPU for each due row: `server`, `python`, `jvm` or `total`."""
        return float(getattr(self.cpu, kind)) / self.rows * 1_000_000


def summary_of(runs: Sequence[Run], peer: str) -> list[dict[str, Any]]:
    """The medians of each contender. `ratio` is the median of the rounds' ratios to `peer`."""
    by_contender: dict[str, list[Run]] = {}
    for run in runs:
        by_contender.setdefault(run.contender, []).append(run)
    rates = {name: [r.rows_per_second for r in own] for name, own in by_contender.items()}
    peers = {run.round: run.rows_per_second for run in by_contender[peer]}
    return [
        {
            "contender": name,
            "runs": len(own),
            "rows_per_second": round(median(rates[name])),
            "slowest": round(min(rates[name])),
            "fastest": round(max(rates[name])),
            "seconds": round(median(r.seconds for r in own), 2),
            "ratio": round(median(r.rows_per_second / peers[r.round] for r in own), 2),
            **{f"cpu_us_{kind}": round(median(r.cpu_us(kind) for r in own), 1) for kind in KINDS},
            "lost": sum(r.count.lost for r in own),
            "doubled": sum(r.count.doubled for r in own),
            "early": sum(r.count.early for r in own),
            **({DEADLOCKS: sum(r.steps[DEADLOCKS] for r in own)} if _counts(own) else {}),
        }
        for name, own in by_contender.items()
    ]


def _counts(runs: Sequence[Run]) -> bool:
    return all(DEADLOCKS in run.steps for run in runs)


def shares_of(runs: Sequence[Run]) -> dict[str, float]:
    """The median shares of plan, dispatch, settle and the rest, in runs with known steps."""
    told = [run for run in runs if run.steps.keys() & STAGE_OF.keys()]
    if not told:
        return {}
    shares = {}
    for stage in STAGES:
        names = [name for name, of in STAGE_OF.items() if of == stage]
        each = [sum(run.steps.get(name, 0.0) for name in names) / run.seconds for run in told]
        shares[stage] = round(median(each), 3)
    return shares | {"rest": round(1 - sum(shares.values()), 3)}


def write(file: Path, machine: dict[str, Any], runs: Sequence[Run], peer: str) -> None:
    """Write the results as JSON."""
    result = {
        "machine": machine,
        "peer": peer,
        "summary": summary_of(runs, peer),
        "shares_of_warm_sweep": shares_of(runs),
        "runs": [asdict(run) | {"rows_per_second": round(run.rows_per_second)} for run in runs],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=2) + "\n")


def show(machine: dict[str, Any], runs: Sequence[Run], peer: str) -> None:
    """Print the results as tables."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    table = Table(title="Rows a second, medians", title_justify="left")
    table.add_column("contender")
    for name in ("runs", "rows/s", "slowest", "fastest", "seconds", "ratio"):
        table.add_column(name, justify="right")
    table.add_column("µs of CPU a row: server, Python, JVM = all", justify="right")
    table.add_column("lost, doubled, early", justify="right")
    for row in summary_of(runs, peer):
        figures = [row["rows_per_second"], row["slowest"], row["fastest"]]
        faults = ", ".join(f"{row[name]:,}" for name in ("lost", "doubled", "early"))
        table.add_row(
            row["contender"],
            str(row["runs"]),
            *(f"{value:,}" for value in figures),
            f"{row['seconds']:.1f}",
            f"{row['ratio']:.2f}",
            _cpu_text(row),
            faults,
        )
    console.print(table)
    for row in summary_of(runs, peer):
        if DEADLOCKS in row:
            console.print(
                f"Deadlocks of {row['contender']}: {row[DEADLOCKS]} in {row['runs']} runs"
            )
    shares = ", ".join(f"{stage} {share:.0%}" for stage, share in shares_of(runs).items())
    if shares:
        console.print(f"Shares of the warm sweep: {shares}")
    console.print("; ".join(f"{name} {value}" for name, value in machine.items()))


def _cpu_text(row: dict[str, Any]) -> str:
    *parts, total = (f"{row[f'cpu_us_{kind}']:.0f}" for kind in KINDS)
    # A server elsewhere is not measured.
    return f"?, {', '.join(parts[1:])}" if parts[0] == "0" else f"{', '.join(parts)} = {total}"
