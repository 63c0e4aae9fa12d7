"""The table of many trials, as Markdown."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from support.trials.conduct import Result
from support.trials.points import NAMES, WHEN

_HEADS = (
    *("fault", "runs", "lost", "doubled", "early"),
    *("ledger right", "exit codes", "seconds to recover"),
)


def table(results: Iterable[Result]) -> str:
    """A row for each fault, and one for all."""
    by_fault: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: str(result.trial.fault)):
        by_fault.setdefault(str(result.trial.fault), []).append(result)
    everything = [result for some in by_fault.values() for result in some]
    rows = [_HEADS, ("---",) * len(_HEADS)]
    rows += [tuple(_row(fault, some)) for fault, some in by_fault.items()]
    rows.append(tuple(_row("**all**", everything)))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def summary(results: Sequence[Result], seconds: float) -> str:
    """The sums of all trials, and the doubled messages of each place."""
    bound = sum(result.bound for result in results)
    wrong = sum(bool(result.verdict.untrue or result.problems) for result in results)
    recovered = [r.recovery_seconds for r in results if r.recovery_seconds is not None]
    text = (
        f"{len(results)} trials in {seconds / 60:.0f} minutes: "
        f"{sum(result.verdict.lost for result in results):,} messages lost, "
        f"{sum(result.verdict.early for result in results)} early, "
        f"{sum(result.verdict.doubled for result in results):,} doubled "
        f"(at most {bound:,} allowed).\n"
        f"Ledger or exit code wrong in {wrong} trials. The time until nothing was left was "
        f"{median(recovered):.1f} s (median), at most {max(recovered):.1f} s.\n\n"
    )
    places: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: result.trial.place):
        places.setdefault(result.trial.place, []).append(result)
    rows: list[tuple[str, ...]] = [("store and queues", "trials", "doubled"), ("---",) * 3]
    rows += [(name, str(len(some)), _doubled(some)) for name, some in places.items()]
    return text + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def places_table(results: Sequence[Result]) -> str:
    """The places of the trials: how many with each place, engine and writer."""
    counted = Counter((r.trial.place, r.trial.engine, r.trial.writer) for r in results)
    doubled: Mapping[tuple[str, str, str], int] = Counter()
    for result in results:
        trial = result.trial
        doubled[trial.place, trial.engine, trial.writer] += result.verdict.doubled  # type: ignore[index]
    rows: list[tuple[str, ...]] = [
        ("store and queues", "engine", "ledger's writer", "runs", "doubled"),
        ("---",) * 5,
    ]
    rows += [(*where, str(runs), str(doubled[where])) for where, runs in sorted(counted.items())]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def points_table(fired: Iterable[str]) -> str:
    """How often each crash point is in `fired`: 0 if no trial had a fault there.
    The moved form of a batch has points of its own.
    """
    times = Counter(fired)
    rows: list[tuple[str, ...]] = [("crash point", *WHEN), ("---",) * 3]
    rows += [(name, *(str(times[f"{when} {name}"]) for when in WHEN)) for name in NAMES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(name: str, results: Sequence[Result]) -> Iterator[str]:
    yield name
    yield str(len(results))
    yield str(sum(result.verdict.lost for result in results))
    yield _doubled(results)
    yield str(sum(result.verdict.early for result in results))
    true = sum(not result.verdict.untrue for result in results)
    yield "yes" if true == len(results) else f"{true} of {len(results)}"
    codes = Counter(code for result in results for code in result.harmed_codes)
    yield ", ".join(f"{code} ({count} times)" for code, count in sorted(codes.items(), key=str))
    seconds = [r.recovery_seconds for r in results if r.recovery_seconds is not None]
    yield f"{median(seconds):.1f}, at most {max(seconds):.1f}" if seconds else "never"


def _doubled(results: Sequence[Result]) -> str:
    """How many, and how many at most by the guarantee, if any may be."""
    doubled = sum(result.verdict.doubled for result in results)
    bound = sum(result.bound for result in results)
    return f"{doubled:,} (at most {bound:,})" if bound else f"{doubled:,}"
