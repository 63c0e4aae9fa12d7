"""The structure of the package: its entries, and which of them may import which."""

import tomllib
from pathlib import Path
from typing import Any

import grimp

import duesweep
from proof.house import handed_down

_PACKAGE = Path(duesweep.__file__).parent
_ROOT = _PACKAGE.parents[1]
# From the outside in. Packages in one group do not import each other.
_LAYERS = [
    ["cli"],
    ["report"],
    ["operations"],
    ["config"],
    ["sweep"],
    ["ledger", "queues"],
    ["stores"],
    ["drivers"],
    ["core"],
]


def _contracts() -> list[dict[str, Any]]:
    text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts: list[dict[str, Any]] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    return contracts


def test_package_has_twelve_entries_and_the_marker_of_its_types() -> None:
    entries = {entry.name for entry in _PACKAGE.iterdir() if entry.name != "__pycache__"}

    packages = {name for group in _LAYERS for name in group}
    assert entries == packages | {"__init__.py", "__main__.py", "py.typed"}


def test_each_layer_imports_only_those_below_it_without_an_exception() -> None:
    (contract,) = (each for each in _contracts() if each["type"] == "layers")

    assert contract["containers"] == ["duesweep"]
    assert contract["exhaustive"] is True
    # Only the names for programs, which are imported when they are used.
    assert contract["ignore_imports"] == ["duesweep -> duesweep.operations.duesweep"]
    layers = [[name.strip() for name in layer.split("|")] for layer in contract["layers"]]
    assert layers == [["__main__"], *_LAYERS]


def test_figures_of_the_structure_count_by_the_same_layers() -> None:
    text = (_ROOT / "proof" / "layers.toml").read_text(encoding="utf-8")

    assert tomllib.loads(text) == {"order": _LAYERS, "today": {"cli": ["__main__"]}}


def test_no_store_and_no_queue_takes_a_function_that_reaches_up() -> None:
    """The sweep hands values down: a store that calls back cannot be followed by a reader."""
    modules = {path: path.read_text(encoding="utf-8") for path in _PACKAGE.rglob("*.py")}

    assert list(handed_down(modules)) == []
    taking = "class Store(Protocol):\n    def move(self, into: Callable[[str], str] | None): ..."
    assert list(handed_down({Path("stores", "a.py"): taking})) == ["Store.move(into)"]


def test_files_import_each_other_in_no_circle() -> None:
    graph = grimp.build_graph("duesweep", exclude_type_checking_imports=True, cache_dir=None)
    below = {module: graph.find_upstream_modules(module) for module in graph.modules}
    circles = [
        {name, *(each for each in found if name in below[each])} for name, found in below.items()
    ]

    assert [sorted(circle) for circle in circles if len(circle) > 1] == []
