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
from collections import Counter
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
LONG_LINES = 500
SHORT_LINES = 6
NOT_MEASURED = "not measured"
# A command of one message takes two seconds.
TRACE_SECONDS = 120
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
    def imports_at_run_time(self) -> grimp.ImportGraph:
        """The same without imports that only checkers of types follow."""
        sys.path.insert(0, str(self.root / PACKAGE.parent))
        try:
            return grimp.build_graph(
                PACKAGE.name, exclude_type_checking_imports=True, cache_dir=None
            )
        finally:
            del sys.path[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All parts of the package's Python."""
        return [node for text in self.modules.values() for node in ast.walk(ast.parse(text))]

    @cached_property
    def classes(self) -> dict[str, ast.ClassDef]:
        """The package's classes by their names."""
        return {node.name: node for node in self.nodes if isinstance(node, ast.ClassDef)}

    @cached_property
    def traces(self) -> dict[str, list[str]]:
        """The functions that run in a sweep of one message, in its slice, and in a command, each
        as MODULE:FUNCTION.
        """
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


@rule("lines of the transports' own tools", NOT_MEASURED, "≤ 3,200")
def tool_lines(tree: Tree) -> int:
    """Lines of Python of lib/duesweep_transport, which is not part of the package. Its SQL is."""
    files = (tree.root / "lib" / "duesweep_transport").rglob("*.py")
    return sum(len(file.read_text("utf-8").splitlines()) for file in files)


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
    return sum(isinstance(node, ast.ClassDef) and _is_abstract(node) for node in tree.nodes)


@rule("methods of the largest contract", "50 in 074837ec", "≤ 12")
def methods_of_a_contract(tree: Tree) -> str:
    """Methods and properties that a protocol or abstract base class has, also from its bases."""
    contracts = [node for node in tree.classes.values() if _is_abstract(node)]
    most = max(contracts, key=lambda node: len(_methods(node, tree.classes)))
    return f"{len(_methods(most, tree.classes))} ({most.name})"


@rule("callables held in fields", "34 in 074837ec", "≤ 6")
def callables_in_fields(tree: Tree) -> int:
    """Fields of dataclasses and named tuples whose annotation is a `Callable`, also by a name that
    the package gives to one, or which may be None.
    """
    names = {name for node in tree.nodes for name in _names_of_callables(node)}
    return sum(
        _is_callable(field.annotation, names)
        for node in tree.nodes
        if isinstance(node, ast.ClassDef) and _has_fields(node)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    )


@rule("calls back", "4 in 86e4d06b", "0")
def calls_back(tree: Tree) -> int:
    """Parameters that may be a `Callable` of the contracts (protocols and abstract base classes) of
    stores and queues: through one, a store would reach up into the sweep that called it.
    """
    return sum(1 for _ in handed_down(tree.modules))


@rule("circles of files", "2 (16 files) in 074837ec", "0")
def circles_of_files(tree: Tree) -> str:
    """Groups of modules each of which imports all others of it, directly or not, at the top or in
    a function. Imports for checkers of types alone do not count, since nothing runs by them.
    """
    found = circles(tree.imports_at_run_time)
    return f"{len(found)} ({sum(map(len, found))} files)" if found else "0"


@rule("files over 500 lines", "7 in 074837ec", "≤ 3")
def long_files(tree: Tree) -> int:
    """Python files of the package with more than 500 lines."""
    return sum(len(text.splitlines()) > LONG_LINES for text in tree.modules.values())


@rule("short private functions that are used once", "185 in 074837ec", "≤ 60")
def used_once(tree: Tree) -> int:
    """Functions and methods of at most six lines, without decorators, whose name begins with one
    underscore and is used at one place of their file.
    """
    return sum(_used_once(ast.parse(text)) for text in tree.modules.values())


@rule(
    "files and functions of `Duesweep.sweep()` for one message",
    "54, 450 in 074837ec",
    "≤ 28, ≤ 260",
)
def functions_of_a_message(tree: Tree) -> str:
    """Python files of which a function is called, in any thread, from the call of
    `Duesweep.sweep()` to its return, and these functions. It is the second sweep of an endpoint on
    PostgreSQL, in process, of one message. Lambdas, comprehensions and generated methods do not
    count, nor does code that runs while a module is imported.
    """
    return _files_and_functions(tree.traces["sweep"])


@rule("files and functions of its slice", "24, 164 in 074837ec", "≤ 14, ≤ 100")
def functions_of_a_slice(tree: Tree) -> str:
    """The same from the call of `Slice.work` (before: `dispatch_slice`) to its return."""
    return _files_and_functions(tree.traces["slice"])


@rule("files of `cancel --destination X` before the store", "47, by reading", "≤ 19")
def files_of_cancel(tree: Tree) -> int:
    """Python files of which a function is called during the whole command, which finds one message
    and cancels it; without files of the layers ledger, queues, stores and drivers.
    """
    behind = {"ledger", "queues", "stores", "drivers"}
    return sum(tree.layers.of(name) not in behind for name in _files(tree.traces["cancel"]))


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


def _methods(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    own = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
    names = {ast.unparse(base).rpartition(".")[2] for base in bases}
    return own.union(*(_methods(classes[name], classes) for name in names & classes.keys()))


def _names_of_callables(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript() as value):
            if _is_callable(value, set()):
                yield name


def _is_callable(annotation: ast.expr, names: set[str]) -> bool:
    """`names` are names of callables."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return any(_is_callable(each, names) for each in (annotation.left, annotation.right))
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    return ast.unparse(annotation) in {"Callable", *names}


def handed_down(modules: dict[Path, str]) -> Iterator[str]:
    """The callables that contracts of stores and queues take, as CLASS.METHOD(PARAMETER)."""
    for path, text in modules.items():
        if not {"stores", "queues"} & set(path.parts):
            continue
        for contract in ast.walk(ast.parse(text)):
            if not (isinstance(contract, ast.ClassDef) and _is_abstract(contract)):
                continue
            for method in contract.body:
                if isinstance(method, ast.FunctionDef):
                    arguments = (*method.args.args, *method.args.kwonlyargs)
                    for each in arguments:
                        if each.annotation and "Callable" in ast.unparse(each.annotation):
                            yield f"{contract.name}.{method.name}({each.arg})"


def _has_fields(node: ast.ClassDef) -> bool:
    bases = map(ast.unparse, node.bases)
    decorators = map(ast.unparse, node.decorator_list)
    return "NamedTuple" in bases or any(each.startswith("dataclass") for each in decorators)


def _used_once(tree: ast.Module) -> int:
    nodes = list(ast.walk(tree))
    uses = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return sum(
        node.name.startswith("_")
        and not node.name.startswith("__")
        and not node.decorator_list
        and (node.end_lineno or node.lineno) - node.lineno < SHORT_LINES
        and uses[node.name] == 1
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    )


def circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Groups of modules that import each other, directly or not."""
    below = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found: list[set[str]] = []
    for module in sorted(graph.modules):
        circle = {module, *(each for each in below[module] if module in below[each])}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def _files(functions: list[str]) -> set[str]:
    return {name.partition(":")[0] for name in functions}


def _files_and_functions(functions: list[str]) -> str:
    return f"{len(_files(functions))}, {len(functions)}"


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
    """Sweep a message of a new database with the code of a tree, and cancel another one."""
    # The name of this module is free in this process only after grimp has looked for the package.
    from duesweep.operations.demo.server import EmbeddedServer  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name, EmbeddedServer(Path(name, "server")) as server:
        commands = Commands(root, Path(name))
        commands.configure(server.dsn)
        commands.run("setup")
        # The first sweep of an endpoint also creates its ledger.
        for _ in range(2):
            commands.run("queue", "send", "Sales", "--delay", "1ms")
            swept = commands.trace("sweep")
        commands.run("queue", "send", "Sales", "--delay", "1d")
        cancelled = commands.trace("cancel", "--destination", "Sales*", "--reason", "-", "--yes")
    return {**swept, "cancel": cancelled["all"]}


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

    def trace(self, *arguments: str) -> dict[str, list[str]]:
        """Run a command, or `Duesweep.sweep()`; what proof/trace.py has written."""
        out = self.folder / "functions"
        told = self._python(str(PROOF / "trace.py"), str(out), *arguments)
        found: dict[str, list[str]] = json.loads(out.read_text("utf-8"))
        if not all(found.values()) or not re.search(r"\b1\b", told):
            raise ProofError(f"{arguments} did not reach one message: {told}")
        return found

    def _python(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [sys.executable, *arguments],
                check=False,
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(self.root / PACKAGE.parent)},
                capture_output=True,
                text=True,
                timeout=TRACE_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise ProofError(f"{arguments} has not ended after {TRACE_SECONDS} s") from error
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
                _shown(before.get(rule.name, NOT_MEASURED)),
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
