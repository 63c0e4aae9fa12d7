"""Simulated sweeps, whose order, faults and clocks a seed decides: `proof/run simulate`.

    proof/run simulate --runs 1000
    proof/run simulate --seconds 60 --seed 5000
    proof/run simulate --seed 44 --runs 1 --trace [--with '{"messages": 3}']
    proof/run simulate --rules

A run that breaks a promise is cut to the simplest one that does, whose command is printed; the exit
code is 1. `--rules` takes each rule out, and prints how long it takes until a run breaks a promise.
"""

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

from support.simulation.rules import RULES, settings_for
from support.simulation.run import Result, Settings, Simulation, shrink

# The runs of a rule that was taken out, at most.
_MOST_RUNS_OF_A_RULE = 3_000
_CHUNK = 20


def run_seed(seed: int) -> Result:
    """The run of a seed."""
    if seed % _CHUNK == 0:
        # Greenlets and their frames are circles, which a slice lets stay for long.
        gc.collect()
    return Simulation(Settings.of(seed)).run()


def quiet() -> None:
    """Say nothing on stderr: sweeps warn of each fault."""
    logging.disable()
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends


def results(seeds: Iterator[int], until: float | None) -> Iterator[Result]:
    """The results of seeds, on all cores, until a time at the latest."""
    with ProcessPoolExecutor(initializer=quiet) as pool:
        while (until is None or time.monotonic() < until) and (some := [*islice(seeds, 200)]):
            yield from pool.map(run_seed, some, chunksize=_CHUNK)


def simulate(options: argparse.Namespace) -> int:
    """Run seed after seed."""
    began = time.monotonic()
    until = None if options.seconds is None else began + options.seconds
    endless = count(options.seed)
    seeds = endless if until is not None else islice(endless, options.runs)
    runs = sweeps = steps = faults = 0
    broken: list[Result] = []
    for each in results(seeds, until):
        runs, sweeps, steps = runs + 1, sweeps + each.sweeps, steps + each.steps
        faults += len(each.faults)
        if each.broken is not None:
            broken.append(each)
            print(f"seed {each.settings.seed}: {each.broken}")
    seconds = time.monotonic() - began
    print(
        f"{runs:,} runs, {sweeps:,} sweeps, {faults:,} faults, {steps:,} steps in {seconds:.0f} s: "
        f"{sweeps / seconds:,.0f} sweeps a second; {len(broken)} runs broke a promise"
    )
    for each in broken[:3]:
        quiet()
        small = shrink(each)
        print(
            f"\n{small.broken}\n  proof/run simulate --seed {small.settings.seed} --runs 1 --trace "
            f"--with '{small.settings.written()}'"
        )
    return int(bool(broken))


def show(options: argparse.Namespace) -> int:
    """Run one seed, and print its steps."""
    quiet()
    settings = Settings.of(options.seed)
    changed = json.loads(options.with_ or "{}")
    if "roles" in changed:
        changed["roles"] = tuple(changed["roles"])
    result = Simulation(replace(settings, **changed), keeps_trace=True).run()
    print(*result.trace, sep="\n")
    print(f"\n{result.settings}\n", *result.faults, sep="\n")
    print(f"\n{result.broken or 'No promise is broken.'}")
    return int(result.broken is not None)


def rules() -> int:
    """Take each rule out, and print how soon a run breaks a promise."""
    quiet()
    missed = 0
    print("| rule | seconds | runs | broken promise |\n| --- | ---: | ---: | --- |")
    for rule, taken_out in RULES.items():
        began = time.monotonic()
        with taken_out():
            settings = (settings_for(rule, seed) for seed in range(_MOST_RUNS_OF_A_RULE))
            results = (Simulation(each).run() for each in settings)
            found = next((each for each in results if each.broken), None)
        seconds = time.monotonic() - began
        missed += found is None
        text = "none" if found is None else str(found.broken).partition(": ")[2]
        runs = _MOST_RUNS_OF_A_RULE if found is None else found.settings.seed + 1
        print(f"| {rule} | {seconds:.1f} | {runs} | {text[:120]} |", flush=True)
    return int(missed > 0)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, help="in place of a number of runs")
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--trace", action="store_true", help="print the steps of one seed")
    parser.add_argument("--with", dest="with_", help="other settings than the seed's, as JSON")
    parser.add_argument("--rules", action="store_true")
    options = parser.parse_args()
    if options.rules:
        return rules()
    return show(options) if options.trace else simulate(options)


if __name__ == "__main__":
    sys.exit(main())
