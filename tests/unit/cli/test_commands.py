"""The parts of a command: groups of options, its result, and its sentence when it does not end."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from duesweep.cli.commands import About, Act, Common, Result, Several, Sources, Which, command
from duesweep.report.text import Line, Note


@dataclass(frozen=True, slots=True)
class _Value:
    name: str
    exit_code: int = 3


@dataclass(frozen=True, slots=True)
class _Failed:
    error: str | None
    exit_code: int = 4


_app = typer.Typer()


@_app.callback()
def _group() -> None:
    """More than one command."""


@command(_app, "take", ending="it is taken", document=lambda: {"taken": None})
def _take(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys.")] = None,
    *,
    common: Common,
    which: Which,
    act: Act,
) -> Result:
    """Take keys."""
    text = f"{keys} {common.settings} {which.destination} {act.reason} {act.yes}"
    return Result(_Value(text), [Line(text), Note("beside it", with_json=True)])


_COMMANDS: Any = typer.main.get_command(_app)


def _run(*arguments: str) -> object:
    return _COMMANDS(args=list(arguments), prog_name="x", standalone_mode=False)


def test_groups_get_their_options_and_the_result_is_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("--destination", "B*", "--set", "a.b=1", "--reason", "why", "--yes")

    code = _run("take", "k1", "k2", *given)

    assert (code, capsys.readouterr()) == (
        3,
        ("['k1', 'k2'] ['a.b=1'] B* why True\n", "duesweep: beside it\n"),
    )


def test_result_is_a_document_if_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("take", "--json") == 3

    out, err = capsys.readouterr()
    assert out == '{"name": "None None None None False", "exit_code": 3, "error": null}\n'
    assert err == "duesweep: beside it\n"


def test_json_is_the_last_option_whatever_group_has_it() -> None:
    options = [one.name for one in _COMMANDS.commands["take"].params]

    assert options[:4] == ["keys", "config", "endpoint", "settings"]
    assert options[-1] == "as_json"


def test_what_holds_after_an_interruption_is_found_by_the_arguments() -> None:
    about = About.of(_COMMANDS, ["take", "take", "--json"])

    assert about is not None
    assert about.failed is not None
    assert (about.ending, about.failed()) == ("it is taken", {"taken": None})
    assert About.of(_COMMANDS, ["--json"]) is None


def test_document_of_several_endpoints_has_the_error_of_each(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.toml" for name in ("Billing", "Sales")]
    for file in files:
        text = '[store]\nkind = "postgresql"\ndsn = "postgresql://db.example/nsb"\n'
        file.write_text(f'{text}endpoint = "{file.stem}"\n[ledger]\nroot = "/ledger"\n', "utf-8")
    errors = iter(["the ledger is full", None])

    def do(_: object) -> Result:
        return Result(_Failed(next(errors)), ())

    found = Several(config=files, as_json=True).each(do).value

    assert isinstance(found, Sources)
    assert [each["error"] for each in found.sources] == ["the ledger is full", None]
