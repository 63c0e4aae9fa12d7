"""Statements as text: the sent ones, by transaction, by their names in the files of SQL."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby

from duesweep.drivers.statements import statements
from support.golden.wire import Exchange, Statement

_COMMENT = re.compile(r"-- .*")
_COMMENT_LINES = re.compile(r"^ *--.*\n|-- .*", re.MULTILINE)
# Literals that differ from run to run in the queries.
_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
# A limit grows with the number of messages that the server estimates.
_LIMIT = re.compile(r"(?<='statement_timeout', ')300\d\d(?=')")
_PROCESS = re.compile(r"(?<=pg_backend_pid\(\) = )\d+")
_INSTANT = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?\+00:00")
# In the list of a session; the statement's text is elsewhere.
_LONGEST = 90
# PostgreSQL's are known by the first line of the comment that they are sent with.
_NAMES = {text.partition("\n")[0]: name for name, text in statements("postgresql").items()}
# SQL Server's are sent without comments.
_BRACES = re.compile(r"\{\w+\}")
_VALUE = re.compile(r"(?<![@\w])@[a-z]\w*")

NameOf = Callable[[Statement], str]


def in_postgresql(statement: Statement) -> str:
    """Its names in the files of SQL; its whole text, where it stands in none."""
    found = [line for line in _COMMENT.findall(statement.text) if line in _NAMES]
    named = " with ".join(_NAMES[line] for line in found)
    prefix, _, _ = statement.text.partition("--")
    if found:
        return f"{prefix.strip()} {named}".strip()
    return _steady(" ".join(statement.text.split()))


@cache
def in_sqlserver(statement: Statement) -> str:
    """The same in SQL Server."""
    code = _COMMENT_LINES.sub("", statement.text).strip()
    # Some differ in a table's name only.
    if found := _names_of(code):
        return " or ".join(found)
    # Several in one round trip, some of them for each of some tables.
    if parts := _names_in_order(code):
        return " + ".join(dict.fromkeys(parts))
    return _steady(" ".join(code.split()))


def _names_in_order(code: str) -> list[str]:
    """The names of the statements of which this text consists; none: it has others."""
    names = []
    while code:
        found = [(len(code) - each.end(), name) for name, each in _matches(code)]
        if not found:
            return []
        rest, name = min(found)
        names.append(name)
        code = code[len(code) - rest :].lstrip()
    return names


def _matches(code: str) -> Iterator[tuple[str, re.Match[str]]]:
    for name, pattern in _patterns().items():
        if found := pattern.match(code):
            yield name, found


def _names_of(code: str) -> list[str]:
    return [name for name, pattern in _patterns().items() if pattern.fullmatch(code)]


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Patterns of the texts of SQL Server's statements, with any text in their braces."""
    texts = {name: _COMMENT_LINES.sub("", text) for name, text in statements("sqlserver").items()}
    return {name: _pattern(_VALUE.sub("?", text).strip()) for name, text in texts.items()}


def _pattern(text: str) -> re.Pattern[str]:
    # Several in one round trip have semicolons between them.
    return re.compile("[^;]*?".join(map(re.escape, _BRACES.split(text))))


def _steady(text: str) -> str:
    text = _PROCESS.sub("<process>", _UUID.sub("<uuid>", text))
    return _LIMIT.sub("30000", _INSTANT.sub("<instant>", text))


def told_sessions(sessions: Iterable[Sequence[Exchange]], name_of: NameOf = in_postgresql) -> str:
    """Each session with its transactions in their order; repeated ones are listed once. An
    exchange is a line, so the lines are the round trips, where they say no other number.
    """
    return "\n".join(_told(number, each, name_of) for number, each in enumerate(sessions, 1))


def _told(number: int, session: Sequence[Exchange], name_of: NameOf) -> str:
    # An empty query is a sign of life, asked for after a long wait.
    exchanges = [each for each in session if any(s.text for s in each.statements)]
    transactions = list(_transactions(exchanges))
    statements = sum(len(each.statements) for each in exchanges)
    trips = sum(each.waits for each in exchanges)
    lines = [
        f"session {number}: {statements} statements, {trips} round trips, "
        f"{len(transactions)} transactions"
    ]
    for text, same in groupby(transactions, partial(_told_transaction, name_of)):
        times = len(list(same))
        first, *more = text.splitlines()
        lines += [f"  {times} x {first}" if times > 1 else f"  {first}"]
        lines += [f"      {line}" for line in more]
    return "\n".join(lines) + "\n"


def _transactions(exchanges: Sequence[Exchange]) -> Iterator[list[Exchange]]:
    """The statements that the server commits or rolls back as one."""
    one: list[Exchange] = []
    for each in exchanges:
        one.append(each)
        if not each.is_open:
            yield one
            one = []
    # The client went without an end.
    if one:
        yield one


def _told_transaction(name_of: NameOf, exchanges: Sequence[Exchange]) -> str:
    lines = [_told_exchange(name_of, each) for each in exchanges]
    if len(lines) == 1:
        return lines[0]
    statements = sum(len(each.statements) for each in exchanges)
    trips = sum(each.waits for each in exchanges)
    return "\n".join([f"transaction: {statements} statements, {trips} round trips", *lines])


def _told_exchange(name_of: NameOf, exchange: Exchange) -> str:
    names = " + ".join(_shortened(name_of(each)) for each in exchange.statements)
    return names if exchange.waits == 1 else f"{names} ({exchange.waits} round trips)"


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[:_LONGEST]} …"


def told_statements(sessions: Iterable[Sequence[Exchange]], name_of: NameOf = in_postgresql) -> str:
    """Each statement once, sorted by its name, with all types that its parameters were sent with.
    Without comments, which do not count.
    """
    sent: dict[str, list[Statement]] = {}
    for session in sessions:
        for exchange in session:
            for statement in exchange.statements:
                sent.setdefault(name_of(statement), []).append(statement)
    return "\n".join(_told_statement(name, sent[name]) for name in sorted(sent))


def _told_statement(name: str, sent: Sequence[Statement]) -> str:
    shortest = min(sent, key=lambda each: len(each.types))
    text = _steady(_COMMENT_LINES.sub("", shortest.text).strip())
    # As many as the shortest has.
    types = zip(*(each.types for each in sent), strict=False)
    told = [f"${n} {' or '.join(sorted(set(each)))}" for n, each in enumerate(types, 1)]
    head = f"-- name: {name}" if text != name else "-- without a name"
    return "\n".join([head, *([f"-- {', '.join(told)}"] if told else []), text, ""])
