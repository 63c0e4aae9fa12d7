"""The structure of the package: its entries, and which of them may import which."""

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import grimp
import pytest

import duesweep
from duesweep.drivers.servers import SERVERS, QueueKind
from duesweep.drivers.statements import Session
from duesweep.queues.tables import QueueTableSession
from duesweep.stores.dialect import Dialect, Tables
from duesweep.stores.sql_task import SqlTask
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


@pytest.mark.parametrize("contract", [Session, SqlTask, Dialect, Tables, QueueTableSession])
def test_recipe_of_a_database_says_how_many_methods_it_takes(contract: type) -> None:
    page = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (told,) = re.findall(rf"`{contract.__name__}` \((\d+) methods", page)
    required: frozenset[str] = contract.__abstractmethods__  # type: ignore[attr-defined]

    assert len(required) == int(told)


def test_only_the_table_of_servers_and_its_own_modules_name_a_database_server() -> None:
    named = {
        path.relative_to(_PACKAGE).as_posix()
        for path in _PACKAGE.rglob("*.py")
        for name in SERVERS
        if f'"{name}"' in path.read_text(encoding="utf-8")
        and not path.is_relative_to(_PACKAGE / "drivers" / name)
    }

    own = {f"stores/{name}.py" for name in SERVERS}
    # The demonstration is on PostgreSQL.
    assert named == {"drivers/servers.py", "stores/kinds.py", *own, "cli/demo.py"}
    assert get_args(QueueKind) == (*SERVERS, "rabbitmq")


def test_each_place_that_the_page_names_is_there() -> None:
    page = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, places = page.partition("## Places of decisions")
    places, _, _ = places.partition("\n## ")
    files = set(re.findall(r"`((?:\w+/)+\w+\.py)`", places))
    text = "".join((_PACKAGE / file).read_text(encoding="utf-8") for file in files)
    names = {name.rpartition(".")[2] for name in re.findall(r"`([A-Za-z_.]+)`", places)}

    assert len(files) > 10
    assert [name for name in names if f"def {name}(" not in text] == []


def test_each_step_of_a_message_is_a_function_of_the_file_that_the_page_names() -> None:
    page = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, path = page.partition("## The path of a message")
    steps = re.findall(r"^\| `(\w+/\w+\.py)` \| `(?:(\w+)\.)?(\w+)` \|", path, re.MULTILINE)

    assert len(steps) > 7
    for file, of_class, name in steps:
        text = (_PACKAGE / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text, name
        assert f"class {of_class}" in text or not of_class, of_class
