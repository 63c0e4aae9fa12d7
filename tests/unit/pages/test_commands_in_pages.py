"""Every `duesweep …` and `./spark-submit.sh …` in the pages is a command line of today, and figures
come from the code.

Outputs are compared by tests/acceptance/test_first_pages.py and test_operations_page.py.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.exceptions import TyperException

from duesweep.cli.app import all_commands
from duesweep.config import QueueConfig
from duesweep.core.policy import BATCH_ROWS, CLAIM_SECONDS, MAX_BATCH_ROWS, BatchSize
from duesweep.queues.rabbitmq.topology import LONGEST_DELAY_SECONDS

_ROOT = Path(__file__).parents[3]
_PAGES = [
    *(_ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((_ROOT / "docs").glob("**/*.md")),
]
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SHELLS = {"", "console", "sh", "bash"}
_IN_BLOCK = re.compile(
    r"(?:^|&&|[*\d] ) *(?:\$ )?(?:(?:\./)?duesweep|\./spark-submit\.sh) ([^&\n]*)", re.MULTILINE
)
_IN_TEXT = re.compile(r"`(?:(?:\./)?duesweep|\./spark-submit\.sh) ([^`]+)`")
# The text of a page around a command line: comments, redirections, brackets, "and so on".
_AROUND = re.compile(r"  +#.*| 2?>>? .*|\|\|.*|[\[\]…]")


_APP = typer.main.get_command(all_commands())


def _lines() -> Iterator[tuple[str, str]]:
    """Whole command lines, each with its page."""
    for page in _PAGES:
        for language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            lines = _IN_BLOCK.findall(re.sub(r"\\\n *", "", block))
            for line in lines if language in _SHELLS else ():
                yield page.name, _AROUND.sub("", line).strip()


def _mentions() -> Iterator[tuple[str, str]]:
    """What sentences say of a command, which may lack arguments."""
    for page in _PAGES:
        text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
        for line in _IN_TEXT.findall(text):
            yield page.name, " ".join(_AROUND.sub("", line).split())


def _command(words: list[str]) -> tuple[Any, list[str]]:
    """The command, and its arguments."""
    command: Any = _APP
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def test_command_lines_can_be_parsed() -> None:
    lines = sorted(set(_lines()))

    wrong = [(page, line, why) for page, line in lines if (why := _problem_of_line(line))]

    assert wrong == []
    assert (len(lines) > 35, len({page for page, _ in lines}) > 5) == (True, True)


def test_commands_in_sentences_exist_with_their_options() -> None:
    mentions = sorted(set(_mentions()))

    wrong = [(page, line, why) for page, line in mentions if (why := _problem_of_mention(line))]

    assert wrong == []
    assert len(mentions) > 40


def _problem_of_line(line: str) -> str | None:
    try:
        command, arguments = _command(shlex.split(line))
        if hasattr(command, "commands"):
            return "it is a group of commands, without one of them"
        command.make_context(line, arguments)
    except (KeyError, TyperException) as error:
        return repr(error)
    return None


def _problem_of_mention(line: str) -> str | None:
    *group, alternatives = line.replace(" | ", "|").split(" --")[0].split()
    if "|" not in alternatives:
        group, alternatives = [], line
    for last in alternatives.split("|"):
        if last == "<command> --help":
            continue
        try:
            command, rest = _command([*group, *last.split()])
        except KeyError as error:
            return f"there is no command {error}"
        options = {option for each in command.params for option in each.opts}
        if unknown := {word for word in rest if word.startswith("--")} - options:
            return f"it has no option {unknown}"
    return None


def _text(name: str) -> str:
    return " ".join((_ROOT / name).read_text(encoding="utf-8").split())


def test_window_in_which_messages_may_double_is_one_batch() -> None:
    rows = f"{BATCH_ROWS:,} messages ({MAX_BATCH_ROWS:,} from SQL Server)"
    megabytes = BatchSize().bytes // 1_000_000

    guarantees = _text("docs/delivery-guarantees.md")
    assert f"{rows} or {megabytes} MB of headers and bodies" in guarantees
    assert f"starts no further destination {CLAIM_SECONDS:.0f} s after its claim" in guarantees


@pytest.mark.parametrize("page", ["docs/rabbitmq.md", "docs/parity.md"])
def test_longest_delay_is_the_ladders(page: str) -> None:
    assert f"{LONGEST_DELAY_SECONDS:,} s" in _text(page)


def test_messages_in_flight_are_the_default() -> None:
    default = QueueConfig.model_fields["max_in_flight"].default

    assert f"max_in_flight = {default}" in _text("docs/rabbitmq.md")
