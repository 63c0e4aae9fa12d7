"""Runs commands in one world, and collects their output and their changes."""

import getpass
import json
import re
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from duesweep.core.world import World
from support.endpoint import Endpoint
from support.golden import world
from support.golden.commands import Printed, run
from support.golden.normal import Normaliser
from support.golden.rows import Changes, Table, read_database, read_ledger

FORMS = ("terminal", "pipe", "json")

SETTINGS: dict[str, object] = {
    "store__name": world.SOURCE,
    "retry__max_attempts": 3,
    # Eight days, less what chance takes: a week.
    "retry__initial_seconds": 8 * 86_400,
    "retry__max_seconds": 8 * 86_400,
    "retry__error_queue": "error",
    "breaker__trigger_seconds": 0,
    "metrics__textfile": "sales.prom",
}
LIMIT = """
[[limit]]
destination = "Reminders*"
per_second = 1000
"""

_SIZE = re.compile(r"\d[\d.]* (?:kB|MB)\b|(?<=\"bytes\": )[1-9]\d*")
# Of a metric: an instant, a duration of days, or one of the run itself.
_SECONDS = re.compile(r"(?<=seconds\{).*")


class Recorder:
    """Runs the steps, and collects their output and changes, by the names of the files."""

    def __init__(self, endpoint: Endpoint[Any]) -> None:
        self.endpoint = endpoint
        self.printed: dict[str, str] = {}
        self.base = endpoint.server.time().replace(microsecond=0)
        self._rows = world.write(self.base)
        self.normal = Normaliser(self.base)
        self.changes = Changes(self.normal, {})
        self._number = 0
        self._state: dict[str, Table] = {}
        where = conninfo_to_dict(endpoint.dsn)
        for text, placeholder in {
            str(endpoint.folder): "/folder",
            f":{where['port']}": ":<port>",
            str(where["dbname"]): "<database>",
            f"PostgreSQL {endpoint.fetch('SHOW server_version')[0][0]}": "PostgreSQL <version>",
        }.items():
            self.normal.name(text, placeholder)

    def step(self, name: str) -> str:
        """Begin a step; returns the beginning of its files' names."""
        self._number += 1
        self.normal.step = name
        return f"{self._number:03}-{name}"

    def look(self, name: str, *arguments: str, forms: Sequence[str] = FORMS) -> None:
        """A command that changes nothing, in each form."""
        file = self.step(name)
        for form in forms:
            self._keep(file, form, self._run(form, arguments))
        terminal, pipe = (f"{file}.{form}.txt" for form in ("terminal", "pipe"))
        if self.printed.get(terminal) == self.printed.get(pipe, ""):
            self.printed[f"{file}.txt"] = self.printed.pop(pipe)
            del self.printed[terminal]
        assert self.changed() == ""

    def change(self, name: str, form: str, *arguments: str, answer: str | None = None) -> Printed:
        """A command that changes something, in one form, and the rows that it leaves."""
        file = self.step(name)
        printed = self._run(form, arguments, answer)
        self._keep(file, form, printed)
        self._keep_rows(file)
        return printed

    def happen(self, name: str, *what: Callable[[], object]) -> None:
        file = self.step(name)
        for each in what:
            each()
        self._keep_rows(file)

    def store(self) -> None:
        self.changes.headers = world.load(self.endpoint, self._rows)

    def number(self, body: bytes) -> int:
        return world.number_of(self._rows, body)

    def key(self, body: bytes) -> str:
        return world.key(self.number(body))

    def write(self, name: str, written: str, *arguments: str) -> None:
        """A command that writes a file, with the text of the file."""
        file = self.step(name)
        self._keep(file, "pipe", self._run("pipe", arguments))
        text = (self.endpoint.folder / written).read_text(encoding="utf-8")
        shown = page_text(text) if written.endswith(".html") else _SECONDS.sub(_seconds, text)
        self.printed[f"{file}.file.txt"] = self.normal.text(shown)
        self._keep_rows(file)

    def _run(self, form: str, arguments: Sequence[str], answer: str | None = None) -> Printed:
        given = (*arguments, "--json") if form == "json" else tuple(arguments)
        return run(
            given,
            is_terminal=form in {"terminal", "colours"},
            has_colours=form == "colours",
            answer=answer,
        )

    def _keep(self, file: str, form: str, printed: Printed) -> None:
        normal = Printed(
            [self.normal.text(one, width=0) for one in printed.arguments],
            self._normal_document(printed.out) if form == "json" else self.normal.text(printed.out),
            self.normal.text(printed.err),
            printed.code,
        )
        if printed.arguments[:1] == ("maintain",):
            # Compressed sizes differ by some bytes.
            normal = replace(normal, out=_SIZE.sub(_digits_masked, normal.out))
        if form == "json":
            self.printed[f"{file}.json.txt"] = normal.document
        else:
            self.printed[f"{file}.{form}.txt"] = normal.text

    def _normal_document(self, out: str) -> str:
        documents = (self.normal.value(json.loads(line)) for line in out.splitlines())
        return "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in documents)

    def _keep_rows(self, file: str) -> None:
        if changed := self.changed():
            self.printed[f"{file}.rows.txt"] = changed

    def changed(self) -> str:
        """What changed in all tables since it was asked last."""
        now = read_database(self.endpoint) | read_ledger(self.endpoint.folder / "ledger")
        before, self._state = self._state, now
        return self.changes.text(before, now)


def _digits_masked(found: re.Match[str]) -> str:
    digits = re.sub(r"\d", "#", found[0])
    return f'"{digits}"' if digits.strip("#") == "" else digits


def _seconds(found: re.Match[str]) -> str:
    labels, _, value = found[0].rpartition(" ")
    hours = float(value) / 3_600
    if hours == 0:
        return found[0]
    is_of_messages = 24 < hours < 24 * 365
    return f"{labels} <{hours:.0f} h>" if is_of_messages else f"{labels} <varies>"


def prepare(endpoint: Endpoint[Any], patch: pytest.MonkeyPatch) -> Recorder:
    """A recorder in the endpoint's folder, with the same user, machine and chance each time."""
    patch.setattr(getpass, "getuser", lambda: "ops")
    patch.setattr(socket, "gethostname", lambda: "host")
    patch.setattr(World, "chance", lambda _: world.Middle())
    # Another test of this process may have started a session; this one finds none.
    patch.delitem(sys.modules, "pyspark.sql", raising=False)
    file = endpoint.config_file(**SETTINGS)
    file.write_text(file.read_text(encoding="utf-8") + LIMIT, encoding="utf-8")
    patch.chdir(endpoint.folder)
    return Recorder(endpoint)


_BLOCKS = {"h1", "h2", "h3", "p", "tr", "li", "div", "section", "pre", "summary", "header"}
_CELLS = {"td", "th"}
_WORDS = {"span", "b", "strong", "em", "code", "a", "br", "button"}
_SILENT = {"style", "script", "svg"}


class _Text(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent = 0
        self.feed(html)

    def handle_starttag(self, tag: str, _: object) -> None:
        self._silent += tag in _SILENT
        self.parts.append(
            "\n" if tag in _BLOCKS else " | " if tag in _CELLS else " " if tag in _WORDS else ""
        )

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT
        self.parts.append("\n" if tag in _BLOCKS else " " if tag in _WORDS else "")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(" ".join(data.split()) if data.strip() else " " * bool(data))


def page_text(html: str) -> str:
    lines = (" ".join(line.split()).strip() for line in "".join(_Text(html).parts).splitlines())
    return "".join(f"{line}\n" for line in lines if line)
