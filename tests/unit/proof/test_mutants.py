"""The list of mutants fits the code, and only an assertion in public words detects one."""

import ast
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from proof.detection import failed_assertion, private_names
from proof.mutants import Mutant, problems_of, read_mutants, record_test

ROOT = Path(__file__).resolve().parents[3]
CONTRACT = sorted((ROOT / "lib" / "duesweep_testing" / "contract").rglob("*.py"))
MUTANTS = [one for file in sorted(ROOT.glob("proof/mutants*.toml")) for one in read_mutants(file)]


def test_each_mutant_changes_one_place_of_the_code_as_it_is() -> None:
    assert list(problems_of(MUTANTS, ROOT)) == []


def _tests_of(file: Path) -> set[str]:
    """The tests that a file has: `test_a`, or `TestStore::test_b` of a class in it."""
    tree = ast.parse(file.read_text("utf-8"))
    found = _names(tree, only_top=True)
    for kind in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        # Its own, or tests of the shipped suite that it runs.
        found |= {f"{kind.name}::{name}" for name in _names(kind) | _shipped()}
    return found


@cache
def _shipped() -> set[str]:
    return {name for one in CONTRACT for name in _names(ast.parse(one.read_text("utf-8")))}


def _names(tree: ast.AST, *, only_top: bool = False) -> set[str]:
    nodes = ast.iter_child_nodes(tree) if only_top else ast.walk(tree)
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_recorded_tests_are_there() -> None:
    by_file: dict[str, set[str]] = {}
    for one in MUTANTS:
        if one.test:
            file, _, name = one.test.partition("::")
            by_file.setdefault(file, set()).add(name.partition("[")[0])

    lost = {
        file: sorted(names - (_tests_of(ROOT / file) if (ROOT / file).is_file() else set()))
        for file, names in by_file.items()
    }
    assert {file: names for file, names in lost.items() if names} == {}


def test_recorded_tests_use_no_private_names() -> None:
    """Such a test detects nothing, and all others run in vain."""
    used = {}
    for one in MUTANTS:
        if one.test:
            file, _, name = one.test.partition("::")
            test = name.partition("[")[0].rpartition("::")[2]
            used[one.id] = private_names(ROOT / file, test)

    assert {mutant_id: names for mutant_id, names in used.items() if names} == {}


def test_mutant_whose_text_is_not_there_once_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one two two", "utf-8")

    def problem(mutant_id: str, file: str, old: str) -> Mutant:
        return Mutant(mutant_id, "it works", file, old, "")

    listed = [problem("1", "a.py", "one"), problem("2", "a.py", "two"), problem("3", "b.py", "one")]

    first, second, third = problems_of([*listed, listed[0]], tmp_path)
    assert first.startswith("Mutant 1 is there 2 times")
    assert second.startswith("Mutant 2 (it works): its old text is 2 times in a.py")
    assert third.startswith("Mutant 3 (it works): its old text is 0 times in b.py")


def test_test_is_recorded_in_the_table_of_its_mutant_only(tmp_path: Path) -> None:
    file = tmp_path / "mutants.toml"
    first = '[[mutant]]\nid = "1"\nold = """\n[[mutant]] of it\n"""\n'
    file.write_text(f'# Why.\n\n{first}\n[[mutant]]\nid = "12"\n', "utf-8")

    record_test(file, "1", "tests/test_a.py::test[one]")
    record_test(file, "1", 'tests/test_a.py::test["ü"]')

    assert file.read_text("utf-8").startswith("# Why.\n\n[[mutant]]\n")
    assert tomllib.loads(file.read_text("utf-8"))["mutant"] == [
        {"id": "1", "old": "[[mutant]] of it\n", "test": 'tests/test_a.py::test["ü"]'},
        {"id": "12"},
    ]


def _raised(source: str, file: str) -> BaseException:
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        exec(compile(source, file, "exec"), {"pytest": pytest})
    return caught.value


@pytest.mark.parametrize(
    ("source", "file", "failure"),
    [
        ("assert 1 == 2", "tests/unit/test_a.py", "assertion"),
        ("with pytest.raises(ValueError): pass", "tests/unit/test_a.py", "assertion"),
        ("pytest.fail('Timeout (>120.0s) from pytest-timeout.')", "tests/test_a.py", "time-out"),
        ("raise ExceptionGroup('', [KeyError(), AssertionError()])", "a.py", "assertion"),
        ("raise ExceptionGroup('', [KeyError(), NameError()])", "a.py", None),
        ("assert 1 == 2", "/x/lib/duesweep_testing/contract/a.py", "assertion"),
        ("assert 1 == 2", "/x/lib/duesweep/a.py", None),
        ("None.name", "tests/unit/test_a.py", None),
        ("name", "tests/unit/test_a.py", None),
        ("import duesweep.nothing", "tests/unit/test_a.py", None),
        ("1 +", "lib/duesweep/a.py", None),
    ],
)
def test_assertions_and_time_outs_detect(source: str, file: str, failure: str | None) -> None:
    assert failed_assertion(_raised(source, file)) == failure


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def test_a(): assert one._x", ["_x"]),
        ("from duesweep.a import _x, y\ndef test_a(): pass", ["_x"]),
        ("import duesweep._x.y\ndef test_a(): pass", ["_x"]),
        ("def test_a(patch): patch.setattr('duesweep.a._x', 1)", ["_x"]),
        ("def test_a(patch): patch.setattr(one, '_x', 1)", ["_x"]),
        ("def _help(): one._x\ndef test_a(): _help()", ["_x"]),
        ("def fixture(): one._x\ndef test_a(fixture): pass", ["_x"]),
        ("@f(autouse=True)\ndef _fixture(): one._x\ndef test_a(): pass", ["_x"]),
        ("class A:\n  def test_a(self): self._x.__class__", []),
        ("def test_a(): one._replace(x='_x')", []),
        ("def test_b(): one._x\ndef test_a(): pass", []),
    ],
)
def test_private_names_are_those_that_the_test_and_its_imports_use(
    source: str, names: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "test_x.py"
    file.write_text(source, "utf-8")

    assert private_names(file, "test_a") == names


def test_first_assertion_in_public_words_ends_the_session(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (tmp_path / "test_x.py").write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def server(): assert False\n"
        "def test_passes(): pass\n"
        "def test_server(server): pass\n"
        "def test_breaks(): None.x\n"
        "def test_private(): assert getattr(list, '_x', False)\n"
        "def test_detects(): assert False\n"
        "def test_does_not_run(): assert False\n",
        "utf-8",
    )
    events = tmp_path / "events.jsonl"

    subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)),
            *("-p", "proof.detection", f"--detection={events}"),
        ],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )

    found = [json.loads(line) for line in events.read_text("utf-8").splitlines()]
    assert [(one["test"].partition("::")[2], one["event"]) for one in found] == [
        ("test_passes", "started"),
        ("test_passes", "passed"),
        ("test_server", "started"),
        ("test_server", "other"),
        ("test_breaks", "started"),
        ("test_breaks", "other"),
        ("test_private", "started"),
        ("test_private", "private"),
        ("test_detects", "started"),
        ("test_detects", "detected"),
    ]
