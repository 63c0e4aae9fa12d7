"""Passwords that are hard to pass on, and all places that could show one."""

import itertools
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pyarrow.parquet

# Whatever a text encodes, it keeps these letters.
NEEDLE = "n33dle4Uonly"
# Each sign that a dsn, a URL, a shell or a parser gives a meaning to.
SIGNS = "@:/?#[]%'\";{}=\\ &+$`,()*!-}}{{|<>^~é☃😀"
HARDEST = f"{NEEDLE}{SIGNS}{NEEDLE}"
# Without the needle: some are names of roles, which `ps` shows, and another test may look there.
ODD = [
    f"odd{SIGNS}odd",
    "}",
    "}}",
    "{a}",
    "a;b",
    " blanks ",
    "a\\'b",
    '"quoted"',
    "%41",
    "a+b",
    "$HOME",
    "é☃😀",
]
_PAGES = (
    *("environment/", "SQL/", "SQL/execution/?id=0", "SQL/execution/?id=1", "jobs/", "executors/"),
    *("stages/", "api/v1/applications"),
)
_PAGES_OF_ONE = ("environment", "sql?details=true&planDescription=true", "executors", "jobs")


@dataclass(slots=True)
class Watch:
    """The findings while a command ran: by place, whether the needle was there."""

    port: int | None = None
    seen: dict[str, bool] = field(default_factory=dict)

    @property
    def leaks(self) -> list[str]:
        return [place for place, is_leak in self.seen.items() if is_leak]

    def look_at_processes(self) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (
                    (process / "cmdline")
                    .read_bytes()
                    .replace(b"\0", b" ")
                    .decode("utf-8", "replace")
                )
                name = (process / "comm").read_text("utf-8", "replace").strip()
                self._note(f"ps: {name}", command)

    def look_at_ui(self) -> None:
        for page in _PAGES:
            self._note(f"ui: {page}", self._fetch(page))
        application = self._fetch("api/v1/applications").partition('"id" : "')[2].partition('"')[0]
        if application:
            for page in _PAGES_OF_ONE:
                text = self._fetch(f"api/v1/applications/{application}/{page}")
                self._note(f"ui: api {page}", text)

    def _fetch(self, page: str) -> str:
        with (
            suppress(OSError, HTTPException),
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{page}", timeout=5) as answer,
        ):
            return str(answer.read().decode("utf-8", "replace"))
        return ""

    def _note(self, place: str, text: str) -> None:
        if text:
            self.seen[place] = self.seen.get(place, False) or NEEDLE in text


@contextmanager
def watching(port: int | None = None) -> Iterator[Watch]:
    """Look at all processes, and at Spark's UI at `port`, again and again."""
    watch, is_over = Watch(port), threading.Event()

    def run() -> None:
        # A process may be over at once. The UI keeps showing its contents, and asking it all
        # the time took longer than the sweep.
        for turn in itertools.count():
            if is_over.wait(0.05):
                return
            watch.look_at_processes()
            if port is not None and turn % 40 == 0:
                watch.look_at_ui()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        is_over.set()
        thread.join()


def files_with_needle(folder: Path) -> list[Path]:
    """The files below a folder that have the needle, also inside of Parquet."""
    return [file for file in folder.rglob("*") if file.is_file() and _has_needle(file)]


def _has_needle(file: Path) -> bool:
    if file.suffix == ".parquet":
        table = pyarrow.parquet.read_table(file)
        return NEEDLE in str(table.to_pydict()) or NEEDLE.encode() in str(table.schema).encode()
    return NEEDLE.encode() in file.read_bytes()
