"""The README and docs/tutorial.md: their commands are run, and print the outputs that they show.

With DUESWEEP_WRITE_PAGES=1 the pages get the outputs of today.
"""

import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from duesweep.cli.app import main
from duesweep.operations.command import given_by
from support import console_page
from support.commands import ROOT, run_python
from support.endpoint import Endpoint
from support.waiting import until

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"
_TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@pytest.fixture
def folder(endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder, terminal and connection string."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DUESWEEP_STORE__DSN", endpoint.dsn)
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


def test_readme_shows_what_a_sweep_prints(endpoint: Endpoint, folder: Path) -> None:
    _write_configuration(README, folder)
    world = _World(endpoint, folder, "nsb")
    world.run(["setup"])
    endpoint.create_queue("Billing")
    endpoint.delay_many(3, ["Billing", "Billing", "Shipping"])

    console_page.compare(README, world)


def test_tutorial_shows_what_its_commands_print(endpoint: Endpoint, folder: Path) -> None:
    _write_configuration(TUTORIAL, folder)

    console_page.compare(TUTORIAL, _World(endpoint.named("Shop"), folder, "postgres"))


def _write_configuration(page: Path, folder: Path) -> None:
    (settings,) = _TOML.findall(page.read_text(encoding="utf-8"))
    (folder / "duesweep.toml").write_text(settings, encoding="utf-8")


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


class _World:
    """A reader's endpoint in a database that the page calls `database`."""

    def __init__(self, endpoint: Endpoint, folder: Path, database: str) -> None:
        self._endpoint, self._folder = endpoint, folder
        self._names = {urlsplit(endpoint.dsn).path[1:]: database, given_by(): "you@host"}

    def change(self, event: str) -> None:
        assert event == "two messages are due"
        due = f"SELECT FROM {self._endpoint.delayed} WHERE due <= now() AT TIME ZONE 'UTC'"
        until(lambda: len(self._endpoint.fetch(due)) == 2)

    def run(self, arguments: Sequence[str]) -> str:
        """The output on standard output, a terminal, and standard error, a file."""
        if arguments == ["doctor"]:
            # It starts Spark, which a process of its own ends again.
            return run_python("-m", "duesweep", "doctor").out
        printed, logged = _Terminal(), StringIO()
        with redirect_stdout(printed), redirect_stderr(logged):
            main([*arguments])
        output = _COLOUR.sub("", printed.getvalue()) + logged.getvalue()
        for name, shown in self._names.items():
            output = output.replace(name, shown)
        return output
