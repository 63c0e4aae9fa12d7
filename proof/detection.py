"""A pytest plugin that ends the session at the first test that detects a fault (proof/mutants.py).

A test detects a fault if one of its assertions fails, or if it exceeds its time. `DID NOT RAISE` is
a failed assertion. These do not count:

- any other error, such as AttributeError or one of a driver. It shows that the code could not run,
  but not that a test asserts the promise. The product's own errors do not count either: a test that
  holds a promise can assert it;
- an assertion in the product's own code;
- a failure in the set-up of a test, where servers start;
- a test that uses private names. It would have to change with the code that it should protect.
"""

import ast
import inspect
import json
import sys
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

PRODUCT = Path("lib", "duesweep")
_OWN = {"self", "cls"}
# Public methods of named tuples, whose underscore only keeps them apart from the fields.
_PUBLIC = {"_asdict", "_fields", "_make", "_replace"}
_BY_NAME = {"delattr", "getattr", "setattr"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    parser.addoption(
        "--detection", type=Path, required=True, help="write a JSON line for each event"
    )
    parser.addoption("--to-the-end", action="store_true", help="do not end at the first detection")
    parser.addoption("--fast", action="store_true", help="leave out long tests and those on Spark")
    parser.addoption(
        "--select", type=Path, help="run only the tests, classes and files in this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Classify all failures of this session."""
    file: Path = config.getoption("detection")
    config.pluginmanager.register(Detection(file, goes_on=config.getoption("to_the_end")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are not wanted. As an argument, a test that is gone would end this."""
    if file := config.getoption("select"):
        selected = file.read_text("utf-8").splitlines()
        parts = tuple(name + part for name in selected for part in ("::", "["))
        items[:] = [one for one in items if one.nodeid in selected or one.nodeid.startswith(parts)]
    if config.getoption("fast"):
        items[:] = [one for one in items if not _is_long(one)]


def _is_long(item: pytest.Item) -> bool:
    is_on_spark = "spark" in getattr(item, "fixturenames", ())
    return is_on_spark or item.get_closest_marker("long") is not None


class Detection:
    """Writes the outcome of each test: `started`, `passed`, `detected`, `private`, `other`."""

    def __init__(self, file: Path, *, goes_on: bool) -> None:
        # Kept open: a test may have replaced what opens files.
        self._file = file.open("a", encoding="utf-8")
        self._goes_on = goes_on

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell which test runs: it could hang so that this process has to be killed."""
        self._write("started", nodeid, "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Classify the end of a test."""
        report = yield
        if report.passed and call.when == "call":
            self._write("passed", item.nodeid, "")
        if report.failed and call.excinfo is not None:
            self._classify(item, call)
        return report

    def _classify(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        assert call.excinfo is not None
        error = call.excinfo.value
        failure = None if call.when == "setup" else failed_assertion(error)
        if failure is None:
            self._write("other", item.nodeid, f"{call.when}: {type(error).__name__}: {error}"[:500])
        elif names := private_names(*_place(item)):
            self._write("private", item.nodeid, ", ".join(names))
        else:
            self._write("detected", item.nodeid, failure)
            if not self._goes_on:
                item.session.shouldfail = "The fault is detected"

    def _write(self, event: str, test: str, text: str) -> None:
        self._file.write(json.dumps({"event": event, "test": test, "text": text}) + "\n")
        self._file.flush()


def failed_assertion(error: BaseException) -> str | None:
    """`assertion` or `time-out`; None for any other error."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(failed_assertion, error.exceptions)), None)
    if isinstance(error, pytest.fail.Exception):
        return "time-out" if "from pytest-timeout" in str(error) else "assertion"
    if isinstance(error, AssertionError) and not _is_of_the_product(error):
        return "assertion"
    return None


def _is_of_the_product(error: AssertionError) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    file = trace.tb_frame.f_code.co_filename
    return f"/{PRODUCT}/" in file


def private_names(file: Path, test: str | None) -> list[str]:
    """The private names that a test uses: the names that its module imports, and the names in the
    test itself and in its fixtures and helpers of the same module. Without a test, all of the
    module.
    """
    nodes = _nodes(file)
    found = {name for node in nodes for name in _imported(node)}
    for definition in _used(nodes, test):
        found.update(name for node in ast.walk(definition) for name in _named(node))
    return sorted(filter(_is_private, found))


@cache
def _nodes(file: Path) -> Sequence[ast.AST]:
    """A module, and all that is in it."""
    return list(ast.walk(ast.parse(file.read_bytes())))


def _place(item: pytest.Item) -> tuple[Path, str | None]:
    """The file of a test and its name there; None stands for the whole file."""
    function = getattr(item, "function", None)
    module = sys.modules.get(getattr(function, "__module__", ""))
    file = inspect.getsourcefile(module) if module else None
    if function is None or file is None:
        return item.path, None
    return Path(file), function.__name__


def _used(nodes: Sequence[ast.AST], name: str | None) -> Iterator[ast.AST]:
    """The definitions in a module that a test consists of."""
    defined: dict[str, list[Definition]] = {}
    for node in nodes:
        if isinstance(node, Definition):
            defined.setdefault(node.name, []).append(node)
    if name not in defined:
        yield nodes[0]
        return
    waiting = {name, *(one.name for each in defined.values() for one in each if _is_autouse(one))}
    seen: set[str] = set()
    while waiting:
        current = waiting.pop()
        seen.add(current)
        for definition in defined[current]:
            yield definition
            mentioned = {word for node in ast.walk(definition) for word in _mentioned(node)}
            waiting |= mentioned & set(defined) - seen


def _is_autouse(definition: Definition) -> bool:
    return any(
        keyword.arg == "autouse"
        for decorator in definition.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


def _mentioned(node: ast.AST) -> Iterator[str]:
    """Names that could be definitions of the same module."""
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
            yield name
        case ast.Attribute(value=ast.Name(id=own), attr=name) if own in _OWN:
            yield name


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (part for one in names for part in one.name.split("."))
        case ast.ImportFrom(module=module, names=names):
            yield from (module or "").split(".")
            yield from (one.name for one in names)


def _named(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(value=ast.Name(id=own)) if own in _OWN:
            return
        case ast.Attribute(attr=name):
            yield name
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _BY_NAME:
            texts = (one.value for one in node.args if isinstance(one, ast.Constant))
            yield from (part for text in texts if isinstance(text, str) for part in text.split("."))


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in _PUBLIC
