"""The statements by topic, how a session runs them, in every dialect alike, a server's facts of a
table, and how a transaction runs again if the server rolled it back: deadlocks and serialization
failures.

A line like `-- name: claim` begins a statement. Names are the same in every dialect. What several
statements of a dialect repeat is a fragment. A line like `-- fragment: tick` begins it, and
`{{tick: @due}}` stands for it; `$1`, `$2` … in it are the texts after the colon, separated by
semicolons. Lines before `}}` are the last of them, as the content of a frame:

    {{under_lock: queue; changing
        ALTER TABLE …
    }}

What Spark reads over JDBC is a subquery that can bind no values: they are literals in braces.
"""

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from functools import cache, partial, wraps
from importlib.resources import files
from textwrap import dedent
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from duesweep.core.address import TableName
from duesweep.core.errors import TransactionLostError
from duesweep.core.finding import Check, Finding
from duesweep.core.policy import SessionWaits
from duesweep.core.world import Clock

_MARK = re.compile(r"^-- (name|fragment): (\w+)\n", re.MULTILINE)
# Inner ones first: the text in the braces has none.
_USE = re.compile(r"\{\{(\w+)(?:: ((?:(?!\{\{).)*?))? *(?:\n((?:(?!\{\{)[\s\S])*?)\n *)?\}\}(?!\})")
_ARGUMENT = re.compile(r"\$(\d)")
_HEAD = re.compile(r"\A(?:--.*\n)*")
_TABLE = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?\{(\w+)\} \(\n(.*?)\n\);", re.DOTALL)
# A name, in quotes or brackets if it is a word of SQL, and a type without its length.
_COLUMN = re.compile(r'^ +["\[]?([a-z_]+)["\]]? ([a-z]\w*(?:\[\])?)', re.MULTILINE)
_KEY = re.compile(r"^ +(\w+) .*PRIMARY KEY|PRIMARY KEY \((.*)\)", re.MULTILINE)
# As the catalogs write them, where they write them otherwise.
_TYPES = {"timestamptz": "timestamp with time zone"}
# After this many lost transactions in a row the error is raised.
MAX_LOST_TRANSACTIONS = 5
_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


def statement(dialect: str, name: str) -> str:
    """The text of a statement and the comment above it; `LookupError` for an unknown name."""
    known = statements(dialect)
    if name not in known:
        raise LookupError(f'unknown statement "{name}" in sql/{dialect}/')
    return known[name]


@cache
def statements(dialect: str) -> Mapping[str, str]:
    """The texts of all statements of `dialect` by their names, with the fragments that they use."""
    named, fragments = _read(dialect)
    return {name: expanded(text, fragments) + "\n" for name, text in named.items()}


@cache
def expression(dialect: str, text: str) -> str:
    """The SQL that stands for a name in braces, with the fragments that it uses."""
    return expanded(text, _read(dialect)[1])


def topics(dialect: str) -> Mapping[str, str]:
    """The texts of the files in `sql/<dialect>/` by topic; works from within an archive too."""
    folder = sorted(
        files("duesweep.drivers").joinpath("sql", dialect).iterdir(), key=lambda file: file.name
    )
    return {file.name.removesuffix(".sql"): file.read_text("utf-8") for file in folder}


@cache
def _read(dialect: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The statements and the fragments in the files of a dialect.

    Text before the first mark is for readers, and left out; so are the comments
    at the head of a fragment.
    """
    marked: dict[str, dict[str, str]] = {"name": {}, "fragment": {}}
    for text in topics(dialect).values():
        _, *parts = _MARK.split(text)
        for kind, name, part in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            marked[kind][name] = part.strip("\n")
    fragments = {name: _HEAD.sub("", text) for name, text in marked["fragment"].items()}
    return marked["name"], fragments


def expanded(text: str, fragments: Mapping[str, str]) -> str:
    """The text with fragments in place of their names."""
    count = 1
    while count:
        text, count = _USE.subn(partial(_fragment, fragments), text)
    return text


def _fragment(fragments: Mapping[str, str], use: re.Match[str]) -> str:
    name, listed, block = use.groups()
    arguments = [*(listed.split("; ") if listed else []), *([dedent(block)] if block else [])]
    taken = set(_ARGUMENT.findall(fragments[name]))
    if len(taken) != len(arguments):
        raise ValueError(f"fragment {name} takes {len(taken)} texts, not {arguments}")
    text = _ARGUMENT.sub(lambda at: _at_margin(arguments[int(at[1]) - 1], at), fragments[name])
    return _at_margin(text, use)


def _at_margin(text: str, place: re.Match[str]) -> str:
    """`text` for this place, with its lines from the second on as far to the right as the line
    in which the place is.
    """
    line = place.string[place.string.rfind("\n", 0, place.start()) + 1 : place.start()]
    margin = line[: len(line) - len(line.lstrip(" "))]
    return text.replace("\n", f"\n{margin}")


class Keys(tuple[str, ...]):
    """Keys of messages, as one value of a statement."""

    __slots__ = ()


# What statements have in braces: tables, or SQL that stands for a name.
Names = Mapping[str, TableName | str]
# The name of a statement, its values, and names of its own for its braces.
Named = tuple[str, Mapping[str, object], Names]


class UndoneError(Exception):
    """Raised in the block of a transaction to roll it back."""


class Session(ABC):
    """One session with a database, with a limit on each wait, closed at the end of its `with`. It
    runs the named statements of its dialect. `names` replace the braces; values are
    bound: texts, numbers, bytes, ids, `Keys`, instants, and lists of them. A statement may need
    fewer values than another dialect's statement. Raises `StoreError`.
    """

    waits: SessionWaits
    names: Names

    def __enter__(self) -> Self:
        return self

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def named(self, names: Names) -> Self:
        """The same session with other names in the braces of its statements."""
        other = copy(self)
        other.names = names
        return other

    def rows(self, name: str, /, **values: object) -> list[Any]:
        """The rows that the named statement returns, with their columns as attributes."""
        return self.rows_of_each((name, values, {}), what=name)[0]

    def row(self, name: str, /, **values: object) -> Any:
        """The only row that the named statement returns."""
        (row,) = self.rows(name, **values)
        return row

    @abstractmethod
    def rows_of_each(self, *named: Named, what: str) -> list[list[Any]]:
        """The rows of several named statements, which run in this order, in one round trip. Errors
        name `what`.
        """

    @abstractmethod
    def execute(self, name: str, /, **values: object) -> int:
        """Run the named statement; returns the number of rows that it touched."""

    @abstractmethod
    def query(self, name: str, /, **literals: object) -> str:
        """The text of a statement for JDBC, with texts and instants quoted in it."""

    @abstractmethod
    def script(self, text: str) -> None:
        """Run statements that return nothing and take no values."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """A transaction, or within one a savepoint; committed at the end of the block.

        Raises `TransactionLostError` if the server has rolled back more than the savepoint.
        """

    @abstractmethod
    def pages(
        self, name: str, size: int, values: Mapping[str, object]
    ) -> AbstractContextManager[Iterator[list[Any]]]:
        """The rows of the named statement in pages of `size`."""

    @abstractmethod
    def jdbc_address(self, answer_seconds: float, url: str | None) -> tuple[str, dict[str, str]]:
        """JDBC URL (`url`, unless None) and connection properties of the server that this session
        is connected to. `answer_seconds` is the limit for one answer over JDBC.
        """

    @abstractmethod
    def wait_longer(self, seconds: float) -> AbstractContextManager[None]:
        """In the block, one answer may take `seconds`."""


def describe_statement(name: str, text: str, names: Names) -> str:
    """The named statement and its tables, for error messages."""
    named = [str(each) for key, each in names.items() if f"{{{key}}}" in text]
    # Others are columns, or SQL.
    tables = [each for each in named if each[:1] in {'"', "["} and ('"."' in each or "].[" in each)]
    return f"{name} on {', '.join(tables)}" if tables else name


class OwnTable(NamedTuple):
    """One of duesweep's own tables: its columns with their types, as the catalog writes them, and
    the columns of its primary key.
    """

    columns: Mapping[str, str]
    key: str | None


@cache
def own_tables(dialect: str) -> Mapping[str, OwnTable]:
    """duesweep's own tables: the ones that `create_journal` creates."""
    found = {}
    for table, columns in _TABLE.findall(statement(dialect, "create_journal")):
        kinds = {name: _TYPES.get(kind, kind) for name, kind in _COLUMN.findall(columns)}
        key = _KEY.search(columns)
        found[table] = OwnTable(kinds, key and (key[1] or key[2]))
    return found


# Names of columns, and the types that each may have; none: any type.
Columns = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class FoundTable:
    """`columns` are names to types. `mark` says the format of duesweep's own tables. `has_rules`:
    rules or policies could change an INSERT. `hooks`: triggers and rules that could drop rows.
    `faults`: findings on it by the server's catalog.
    """

    is_table: bool
    columns: Mapping[str, str]
    mark: str | None = None
    has_rules: bool = False
    hooks: Sequence[str] = ()
    faults: Sequence[Finding] = ()

    def fault_by(self, check: Check) -> Finding | None:
        """The finding of this check, if there is one."""
        return next((each for each in self.faults if each.check is check), None)


def wait_seconds(lost: int, rng: random.Random) -> float:
    """How long to wait after `lost` losses in a row. The wait is random, so that transactions that
    blocked each other do not start together again.
    """
    return rng.uniform(0, min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2**lost))


def try_again(
    work: Callable[[], _T], undo: Callable[[str], object], clock: Clock, rng: random.Random
) -> _T:
    """What `work` returns. If its transaction was lost, it runs again after a wait; before that,
    `undo` is called with the error's text.
    """
    lost = 0
    while True:
        try:
            return work()
        except TransactionLostError as error:
            lost += 1
            if lost > MAX_LOST_TRANSACTIONS:
                raise
            # Not the error: its frames hold the bodies of a batch.
            text = str(error)
        undo(text)
        clock.sleep(wait_seconds(lost, rng))


def retry_lost_transactions(work: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make `work` run again when one of its transactions was lost. All that `work` does must be in
    its own transactions.
    """

    @wraps(work)
    def retrying(*arguments: _P.args, **options: _P.kwargs) -> _T:
        rng = random.Random()
        return try_again(lambda: work(*arguments, **options), lambda _: None, Clock(), rng)

    return retrying
