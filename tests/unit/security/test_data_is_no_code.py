"""No data is taken for code or for objects: read from the syntax trees of the sources."""

import ast
from collections.abc import Iterator
from pathlib import Path

import duesweep

PACKAGE = Path(duesweep.__file__).parent

# Whoever can write their input can run code, or make any object.
MODULES = {
    *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "shelve", "marshal", "joblib", "yaml"),
    *("jsonpickle", "code", "codeop", "xml.sax", "xml.dom", "lxml"),
    *("pyspark.cloudpickle", "pyspark.serializers"),
}
CALLS = {"eval", "exec", "compile", "__import__", "literal_eval", "loads_pickle"}
# Both refuse documents' types, and so entities: headers are read, and bodies are only checked.
XML = {"core/headers/xml.py", "report/bodies.py"}


def _nodes() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            yield path.relative_to(PACKAGE).as_posix(), node


def _imported(node: ast.AST) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [module, *(f"{module}.{alias.name}" for alias in names)]
    return []


def test_no_module_is_imported_that_makes_objects_of_bytes() -> None:
    found = {
        (file, name)
        for file, node in _nodes()
        for name in _imported(node)
        if any(name == module or name.startswith(f"{module}.") for module in MODULES)
    }

    assert found == set()


def test_nothing_is_evaluated() -> None:
    found = [
        (file, ast.unparse(node.func))
        for file, node in _nodes()
        if isinstance(node, ast.Call)
        # A method, as re.compile is one, takes no code.
        and isinstance(node.func, ast.Name)
        and node.func.id in CALLS
    ]

    assert found == []


def test_xml_is_parsed_in_two_places_only() -> None:
    found = {
        file for file, node in _nodes() if any(name.startswith("xml") for name in _imported(node))
    }

    assert found == XML


def test_modules_are_imported_by_name_for_settings_only() -> None:
    """`store.kind` may name a class, the doctor tries drivers, and the package loads its own public
    names late; no message names a module.
    """
    found = {
        file
        for file, node in _nodes()
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"import_module", "importlib.import_module"}
    }

    assert found == {
        *("__init__.py", "doctor/question.py", "wiring/custom.py", "wiring/dialects.py"),
        "wiring/services/__init__.py",
    }
