"""docs/parity.md names only what exists: files, headings, tests, statements, settings."""

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from duesweep.config import Config, QueueConfig

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs"
_TEXT = (_DOCS / "parity.md").read_text(encoding="utf-8")
_LINKS = re.findall(r"\[([^\]]+)\]\(([^)#]*)(?:#([^)]*))?\)", _TEXT)
_NAMED = re.findall(r"`([^`]+)`", _TEXT)
_SECTIONS = "|".join(Config.model_fields)
_SETTINGS = sorted({name for name in _NAMED if re.fullmatch(rf"({_SECTIONS})\.[\w.]+", name)})


def _rows() -> Iterator[list[str]]:
    for line in _TEXT.splitlines():
        if line.startswith("| ") and not line.startswith("| the page says"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def _slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower())
    return kept.strip().replace(" ", "-")


def test_each_row_says_what_is_there_what_is_here_and_what_is_different() -> None:
    rows = list(_rows())

    assert len(rows) > 120
    for row in rows:
        assert len(row) == 3, row
        assert all(row), row
        assert re.search(r"\]\(", row[1]), f"no file and no test in {row}"


def test_links_lead_to_files_and_headings() -> None:
    assert len(_LINKS) > 120
    for _, target, anchor in _LINKS:
        file = (_DOCS / target).resolve() if target else _DOCS / "parity.md"
        assert file.is_file(), target
        assert file.is_relative_to(_ROOT), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(_slug, headings), f"{target}#{anchor}"


def test_tests_are_in_the_files_that_they_are_said_to_be_in() -> None:
    tests = [(label, target) for label, target, _ in _LINKS if label.startswith("test_")]

    assert len(tests) > 80
    for name, target in tests:
        text = (_DOCS / target).read_text(encoding="utf-8")
        assert f"def {name}(" in text, f"{name} in {target}"


def test_statements_are_in_the_files_that_they_are_said_to_be_in() -> None:
    named = [(label.strip("`"), target) for label, target, _ in _LINKS if target.endswith(".sql")]

    assert len(named) > 20
    for name, target in named:
        text = (_DOCS / target).read_text(encoding="utf-8")
        assert f"-- name: {name}\n" in text, f"{name} in {target}"


def test_settings_exist() -> None:
    assert len(_SETTINGS) > 8
    for name in _SETTINGS:
        section, *_, key = name.split(".")
        model = QueueConfig if section == "queues" else Config.model_fields[section].annotation

        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        assert key in {field.alias or known for known, field in model.model_fields.items()}, name
