"""Print the figures by which we judge the structure of the code.

`proof/run house [--at COMMIT] [--json]` has the figures of the work tree, or of a commit. Each rule
is a function here; its docstring describes the count, and the page has it below the table. `--json`
prints the figures alone. proof/house-d91097e.json has the figures of d91097e, and proof/house.md is
this page.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import getdoc
from pathlib import Path
from xml.etree import ElementTree

import grimp

PROOF = Path(__file__).resolve().parent
ROOT = PROOF.parent
BEFORE = "d91097e"
PACKAGE = Path("lib", "duesweep")
# Test code that is shipped: the contracts of stores and queues, and a store in memory. The first
# name is the name in d91097e, the second is today's.
TESTING = (PACKAGE / "testing", Path("lib", "duesweep_testing"))
SMALL_LINES = 120
NOT_MEASURED = "not measured"
LAYOUT = {
    tokenize.COMMENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER, tokenize.INDENT,
    tokenize.NEWLINE, tokenize.NL,
}  # fmt: skip


class ProofError(Exception):
    """The figures cannot be measured."""


@dataclass(frozen=True)
class Layers:
    """The layers as proof/layers.toml has them: the rank of each, and the layer of each name."""

    ranks: dict[str, int]
    names: dict[str, str]

    def of(self, module: str) -> str | None:
        """The layer of a module; None for the package itself, which names what users import, and
        for test code.
        """
        _, *parts = module.split(".")
        if not parts or parts[0] == "testing":
            return None
        for length in range(len(parts), 0, -1):
            if layer := self.names.get(".".join(parts[:length])):
                return layer
        raise ProofError(f"{module} has no layer: name it in proof/layers.toml")


def read_layers() -> Layers:
    """Read proof/layers.toml."""
    data = tomllib.loads((PROOF / "layers.toml").read_text("utf-8"))
    ranks = {layer: rank for rank, group in enumerate(data["order"]) for layer in group}
    today = {name: layer for layer, names in data["today"].items() for name in names}
    return Layers(ranks, {layer: layer for layer in ranks} | today)


@dataclass(frozen=True)
class Tree:
    """A checkout. `layers` say where its modules belong."""

    root: Path
    layers: Layers

    @cached_property
    def texts(self) -> dict[Path, str]:
        """The text files of the package without test code."""
        return dict(self._texts())

    def _texts(self) -> Iterator[tuple[Path, str]]:
        for file in sorted((self.root / PACKAGE).rglob("*")):
            path = file.relative_to(self.root)
            if file.is_file() and not _is_among(path, TESTING) and "__pycache__" not in path.parts:
                try:
                    yield path, file.read_text("utf-8")
                except UnicodeDecodeError:
                    continue

    @property
    def modules(self) -> dict[Path, str]:
        """The texts that are Python."""
        return {path: text for path, text in self.texts.items() if path.suffix == ".py"}

    @cached_property
    def imports(self) -> grimp.ImportGraph:
        """Which module imports which, in a function or not, as import-linter sees it."""
        sys.path.insert(0, str(self.root / PACKAGE.parent))
        try:
            return grimp.build_graph(PACKAGE.name, cache_dir=None)
        finally:
            del sys.path[0]

    @cached_property
    def traces(self) -> dict[str, list[str]]:
        """The modules that run in a sweep of one message, and in a command."""
        return trace(self.root)


@dataclass(frozen=True)
class Rule:
    """`count` has a figure of a tree; `documented` is the figure of d91097e that the plan names."""

    name: str
    documented: str
    goal: str
    count: Callable[[Tree], int | str]


RULES: list[Rule] = []


def rule(
    name: str, documented: str, goal: str
) -> Callable[[Callable[[Tree], int | str]], Callable[[Tree], int | str]]:
    """Add a rule to the table."""

    def add(count: Callable[[Tree], int | str]) -> Callable[[Tree], int | str]:
        RULES.append(Rule(name, documented, goal, count))
        return count

    return add


@rule("lines of the package", "42,300", "≤ 31,500")
def lines(tree: Tree) -> int:
    """Lines of all text files of lib/duesweep, SQL and templates too, without the shipped tests."""
    return sum(len(text.splitlines()) for text in tree.texts.values())


@rule("Python tokens", "214,700", "≤ 160,000")
def tokens(tree: Tree) -> int:
    """Tokens of the package's Python, as Python's own tokenizer has them, without comments,
    docstrings, line ends and indentation.
    """
    return sum(_tokens(text) for text in tree.modules.values())


@rule("modules", "443", "≤ 175")
def modules(tree: Tree) -> int:
    """Python files of the package, without the shipped tests."""
    return len(tree.modules)


@rule("entries at the top", "64", "12")
def entries(tree: Tree) -> int:
    """Files and folders that one sees on opening lib/duesweep, without py.typed: an empty file,
    which says to checkers of types that the package has some.
    """
    unseen = {"__pycache__", "py.typed"}
    return sum(1 for each in (tree.root / PACKAGE).iterdir() if each.name not in unseen)


@rule("imports against the layers", "45", "0")
def imports_against(tree: Tree) -> int:
    """Pairs of modules: the first imports the second, at the top or in a function, although the
    second's layer is above its own, or in the same group. proof/layers.toml has the layers and
    which module belongs to which. Imports of and by `duesweep` itself and the shipped tests do not
    count. The plan's figure for d91097e counts lines of a drawing of packages, which cannot be
    repeated.
    """
    return sum(1 for _ in _imports_against(tree))


@rule("protocols and abstract base classes", "55", "≤ 18")
def protocols(tree: Tree) -> int:
    """Classes with `Protocol` or `ABC` among their bases, or with the metaclass `ABCMeta`."""
    classes = (
        node
        for text in tree.modules.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    )
    return sum(map(_is_abstract, classes))


@rule("files that run for one message", "55, by reading", "≤ 35")
def files_of_a_message(tree: Tree) -> int:
    """Python files of which a function is called, in any thread, between the call of the function
    `sweep` and its return, while it sweeps one message of PostgreSQL's transport in process. The
    plan's figure for d91097e comes from reading the code along the message's way, so it is
    lower: the sweep's own checks, locks and limits run too.
    """
    return len(tree.traces["sweep"])


@rule("files of `cancel --destination X` before the store", "47, by reading", "≤ 19")
def files_of_cancel(tree: Tree) -> int:
    """Python files of which a function is called during the whole command, which finds one message
    and cancels it; without files of the layers ledger, queues, stores and drivers.
    """
    behind = {"ledger", "queues", "stores", "drivers"}
    return sum(1 for name in tree.traces["cancel"] if tree.layers.of(name) not in behind)


@rule("small modules of one neighbour", "62", "≤ 10")
def small_modules(tree: Tree) -> int:
    """Modules under 120 lines that exactly one module imports, which is in the same folder.
    Neither is an `__init__.py`.
    """
    return sum(1 for _ in _small_modules(tree))


@rule("lines of tests", "48,500", "≤ 31,500")
def test_lines(tree: Tree) -> int:
    """Lines of the Python files of tests/, and of the shipped tests."""
    folders = [Path("tests"), *TESTING]
    files = (file for folder in folders for file in (tree.root / folder).rglob("*.py"))
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


@rule("minutes of `tests/run`", "about 15", "≤ 8")
def minutes(tree: Tree) -> str:
    """What build/tests.xml says of the last run of the tests, and how many tests these were."""
    file = tree.root / "build" / "tests.xml"
    if not file.is_file():
        return NOT_MEASURED
    suites = list(ElementTree.parse(file).getroot().iter("testsuite"))
    seconds = sum(float(suite.get("time", 0)) for suite in suites)
    tests = sum(int(suite.get("tests", 0)) for suite in suites)
    return f"{seconds / 60:.1f} ({tests:,} tests)"


@rule("mutants detected", "measured first", "not one fewer")
def mutants_detected(tree: Tree) -> str:
    """Faults of proof/mutants*.toml with a recorded test that detects them, and all faults."""
    mutants = [
        mutant
        for file in (tree.root / "proof").glob("mutants*.toml")
        for mutant in tomllib.loads(file.read_text("utf-8"))["mutant"]
    ]
    if not mutants:
        return NOT_MEASURED
    return f"{sum('test' in mutant for mutant in mutants)} of {len(mutants)}"


def _is_among(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _tokens(text: str) -> int:
    docstrings = {node.lineno for node in map(_docstring, ast.walk(ast.parse(text))) if node}
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(
        1
        for token in found
        if token.type not in LAYOUT
        and not (token.type == tokenize.STRING and token.start[0] in docstrings)
    )


def _docstring(node: ast.AST) -> ast.expr | None:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as text), *_]:
            return text
    return None


def _imports_against(tree: Tree) -> Iterator[tuple[str, str]]:
    layers, graph = tree.layers, tree.imports
    for importer in sorted(graph.modules):
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            above, below = layers.of(importer), layers.of(imported)
            if above is None or below is None or above == below:
                continue
            if layers.ranks[above] >= layers.ranks[below]:
                yield importer, imported


def _is_abstract(node: ast.ClassDef) -> bool:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    bases += [keyword.value for keyword in node.keywords if keyword.arg == "metaclass"]
    names = {ast.unparse(base).rpartition(".")[2] for base in bases}
    return bool(names & {"Protocol", "ABC", "ABCMeta"})


def _small_modules(tree: Tree) -> Iterator[str]:
    for path, text in tree.modules.items():
        if path.name == "__init__.py" or len(text.splitlines()) >= SMALL_LINES:
            continue
        module = _module(path)
        importers = tree.imports.find_modules_that_directly_import(module)
        # A folder's `__init__.py` has the folder's name, so it seems to be one floor up.
        if len(importers) == 1 and _folder(*importers) == _folder(module):
            yield module


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _folder(module: str) -> str:
    return module.rpartition(".")[0]


def trace(root: Path) -> dict[str, list[str]]:
    """Sweep one message of a new database with the code of a tree, and cancel another one."""
    # The name of this module is free in this process only after grimp has looked for the package.
    from duesweep.operations.demo.server import EmbeddedServer  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name, EmbeddedServer(Path(name, "server")) as server:
        commands = Commands(root, Path(name))
        commands.configure(server.dsn)
        commands.run("setup")
        commands.run("queue", "send", "Sales", "--delay", "1ms")
        sweep = commands.trace(_sweep(root), "sweep")
        commands.run("queue", "send", "Sales", "--delay", "1d")
        cancel = commands.trace("", "cancel", "--destination", "Sales*", "--reason", "-", "--yes")
    return {"sweep": sweep, "cancel": cancel}


def _sweep(root: Path) -> str:
    is_folder = (root / PACKAGE / "sweep").is_dir()
    return f"{PACKAGE.name}.sweep.sweep:sweep" if is_folder else f"{PACKAGE.name}.sweep:sweep"


@dataclass(frozen=True)
class Commands:
    """Runs commands with the code of a tree; `folder` takes the configuration and the ledger."""

    root: Path
    folder: Path

    def configure(self, dsn: str) -> None:
        """Write the configuration."""
        settings = {
            "store.kind": "postgresql",
            "store.dsn": dsn,
            "store.endpoint": "Sales",
            "retry.error_queue": "error",
            "ledger.root": str(self.folder / "ledger"),
        }
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
        (self.folder / "duesweep.toml").write_text(text, "utf-8")

    def run(self, *arguments: str) -> None:
        """Run a command; `ProofError` if it fails."""
        self._python("-m", PACKAGE.name, *arguments)

    def trace(self, begin: str, *arguments: str) -> list[str]:
        """Run a command; the modules that proof/trace.py has written."""
        out = self.folder / "modules"
        told = self._python(str(PROOF / "trace.py"), str(out), begin, *arguments)
        found = out.read_text("utf-8").split()
        if not found or not re.search(r"\b1\b", told):
            raise ProofError(f"{arguments} did not reach one message, or not {begin!r}: {told}")
        return found

    def _python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            check=False,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.root / PACKAGE.parent)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ProofError(f"{arguments}: {done.stderr or done.stdout}")
        return done.stdout


@contextmanager
def tree_at(commit: str | None) -> Iterator[Tree]:
    """A commit in a temporary folder; without one, the work tree."""
    if commit is None:
        yield Tree(ROOT, read_layers())
        return
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "-C", str(ROOT), "archive", commit]
        archive = subprocess.run(command, check=False, stdout=subprocess.PIPE)
        if archive.returncode:
            raise ProofError(f"There is no commit {commit}")
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Tree(Path(folder), read_layers())


def page(figures: dict[str, int | str], commit: str) -> str:
    """The table and the rules, as Markdown."""
    before = json.loads((PROOF / f"house-{BEFORE}.json").read_text("utf-8"))
    rows = [
        ["", f"{BEFORE} as the plan has it", f"{BEFORE}", commit, "goal"],
        ["---", "---:", "---:", "---:", "---:"],
        *(
            [
                rule.name,
                rule.documented,
                _shown(before[rule.name]),
                _shown(figures[rule.name]),
                rule.goal,
            ]
            for rule in RULES
        ),
    ]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    rules = "".join(
        textwrap.fill(f"- *{rule.name}:* {_text(rule.count)}", 120, subsequent_indent="  ") + "\n"
        for rule in RULES
    )
    return f"{_HEAD}\n{table}\n{rules}"


_HEAD = """# The structure in figures

`proof/run house` prints this page. How many files a *reader* needs for one message is not here,
because no program can measure it.
"""


def _shown(figure: int | str) -> str:
    return f"{figure:,}" if isinstance(figure, int) else figure


def _text(count: Callable[[Tree], int | str]) -> str:
    return " ".join((getdoc(count) or "").split())


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="proof/run house", description=__doc__)
    parser.add_argument("--at", metavar="COMMIT", help="count this commit instead of the work tree")
    parser.add_argument("--json", action="store_true", help="print the figures alone")
    options = parser.parse_args(arguments)
    try:
        with tree_at(options.at) as tree:
            figures = {rule.name: rule.count(tree) for rule in RULES}
    except ProofError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(figures, indent=2, ensure_ascii=False))
    else:
        print(page(figures, options.at or "now"), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
