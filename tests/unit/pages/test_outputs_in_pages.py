"""Outputs, settings and documents in the pages are today's.

`test_commands_in_pages.py` parses the command lines. Outputs are compared by the tests that run
whole pages: tests/acceptance/test_first_pages.py and test_operations_page.py.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from duesweep.config import Config
from duesweep.operations.health import Health

ROOT = Path(__file__).parents[3]
_PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "bench" / "README.md"]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Their commands are run.
_RUN = {"README.md", "tutorial.md", "operations.md"}
# The first words of commands and of the lines of a crontab.
_COMMANDS = (
    *("duesweep", "./duesweep", "export", "docker", "bench/", "tests/run", "databricks", "psql"),
    "spark-submit",
    *("MASTER=", "PATH=", "mkdir", "* * ", "0 3 ", "scripts/"),
)
# The README's outputs of `demo`, which tests/acceptance/test_command.py compares, and of its query,
# which tests/acceptance/test_maintain.py asks.
_OUTPUTS = {("README.md", "location                       messages"), ("README.md", "┌─")}


def _blocks(*languages: str) -> Iterator[tuple[Path, str]]:
    for page in _PAGES:
        for language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            if language in languages:
                yield page, re.sub(r"\\\n *", "", block)


def test_pages_show_outputs_only_of_commands_that_a_test_runs() -> None:
    consoles = {page.name for page, _ in _blocks("console")}
    others = [
        (page.name, line.strip())
        for page, block in _blocks("", "sh", "bash", "text")
        for line in block.splitlines()
        if line.strip() and not line.strip().startswith((*_COMMANDS, ".venv/bin/", "--"))
        if not any(page.name == name and block.startswith(first) for name, first in _OUTPUTS)
    ]

    assert consoles == _RUN
    assert others == [], "show an output after its command in a ```console block that a test runs"


def test_settings_in_pages_are_settings_of_today() -> None:
    blocks = [(page, tomllib.loads(text)) for page, text in _blocks("toml")]

    wrong = [(page.name, error) for page, block in blocks for error in _errors(block)]

    assert wrong == []
    assert len(blocks) > 8


def test_rates_in_the_readme_are_those_of_the_page_about_performance() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    measured = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    rates = re.findall(r"\d+,\d{3}", readme.partition("\n## Why\n")[2].partition("\n## ")[0])

    assert len(rates) == 3
    assert [rate for rate in rates if f"| {rate} |" not in measured] == []


def _errors(content: dict[str, Any]) -> Iterator[str]:
    defaults, endpoints = content.pop("defaults", {}), content.pop("endpoint", [content])
    for endpoint in [defaults, *endpoints]:
        try:
            Config.model_validate(endpoint)
        except ValidationError as error:
            # A page shows a part of a file.
            yield from (
                f"{each['loc']}: {each['msg']}"
                for each in error.errors()
                if each["type"] != "missing"
            )


@pytest.mark.parametrize("page", ["doctor.md", "watch.md"])
def test_documents_in_pages_have_the_keys_of_today(page: str) -> None:
    recorded = ROOT / "tests" / "golden" / "recorded" / "world" / "012-doctor.json.txt"
    findings = json.loads(
        recorded.read_text(encoding="utf-8").partition("\n")[2].partition("\n--- exit")[0]
    )
    health = {"is_well": False, "sources": [Health("nsb", 5).document()]}
    of_today: Mapping[str, Any] = {"doctor.md": findings, "watch.md": health}

    (shown,) = [json.loads(text) for path, text in _blocks("json") if path.name == page]

    assert _keys(shown) == _keys(of_today[page])


def _keys(document: Any) -> Any:
    if isinstance(document, Mapping):
        return {key: _keys(value) for key, value in document.items()}
    if isinstance(document, list) and document and isinstance(document[0], Mapping):
        return [_keys(document[0])]
    return None
