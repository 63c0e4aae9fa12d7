"""SQL is put together in the few places that are named here, from names that are quoted; all else
binds values. Read from the syntax trees of the sources, whatever a text is spelled like.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import duesweep

PACKAGE = Path(duesweep.__file__).parent
Place = tuple[str, ast.AST]

_SQL = re.compile(
    r"\b(SELECT|INSERT INTO|DELETE FROM|TRUNCATE|MERGE|COPY|GRANT|REVOKE|EXEC(UTE)?|SET|SHOW|USE"
    r"|WHERE|VALUES|ANALYZE|(CREATE|DROP|ALTER|LOCK|UPDATE) [A-Z]+)\b"
)
# Sent to a server: the function, and what it puts into the text.
SENT = {
    "drivers/postgresql/connect.py:_set_up": "settings of sessions, as literals",
    "drivers/postgresql/connection.py:copy_messages": "a table",
    "drivers/postgresql/settings.py:settings_query": "settings of sessions, as literals",
    "drivers/sqlserver/connect.py:connect": "settings of sessions, constants and numbers",
    "ledger/delta_rs/counting.py:_statement": "constant columns, and literals",
    "ledger/spark/facts.py:read_facts": "a table of the ledger",
    "ledger/spark/tables.py:create": "a table of the ledger, with constant columns",
    "ledger/spark/tables.py:set_properties": "a table of the ledger, with constant properties",
    "ledger/spark/upkeep.py:_keep_files": "a table of the ledger, and a number",
    "ledger/spark/upkeep.py:remove": "a table of the ledger, a constant column, and literals",
    "demo/ledger_view.py:_count": "a table of the demonstration's own server",
    "demo/ledger_view.py:account": "a table of the demonstration's own ledger",
    "demo/ledger_view.py:show": "a table of the demonstration's own ledger",
    "demo/messages.py:load": "a table of the demonstration's own server",
    "demo/stage.py:create_tables": "a schema of the demonstration's own server",
    "demo/stage.py:load_messages": "a table of the demonstration's own server",
}
# Only told to people.
TOLD = {
    "checks/postgresql.py:_tight",
    "checks/postgresql.py:_with_sequences",
    "checks/postgresql.py:_writer_zone",
    "checks/sqlserver.py:_read_committed_snapshot",
    "checks/sqlserver.py:_version",
    "checks/table_findings.py:_rights",
    "checks/table_findings.py:_unicode",
    "checks/time_outs.py:time_out_findings",
    "demo/run.py:_print_locations",
    "drivers/postgresql/grants.py:grant_of",
    "drivers/sqlserver/errors.py:_grant_of",
    "queues/operations/sqlserver.py:create",
    "queues/sqlserver_notices.py:_narrow_headers",
    "queues/wanted.py:sqlserver_queue",
    "stores/postgresql/facts.py:_table",
    "stores/postgresql/setup.py:_grant_sequence",
    "stores/postgresql/setup.py:grants",
    "stores/postgresql/wanted.py:wanted_tables",
    "stores/sqlserver/setup.py:grants",
    "stores/sqlserver/wanted.py:wanted_tables",
}
# What fills the braces of named statements.
FILLED = {
    "drivers/postgresql/statements.py:text_of",
    "drivers/sqlserver/binding.py:bind",
    "drivers/sqlserver/connection.py:insert_messages",
    "drivers/sqlserver/names.py:creation",
    "drivers/sqlserver/names.py:script",
    "drivers/sqlserver/statements.py:execute_many",
    "drivers/sqlserver/statements.py:query",
}
# The only functions that double a sign.
QUOTING = {
    "core/address/postgresql.py:quote_name": "name.replace('\"', '\"\"')",
    "core/address/sqlserver.py:bracket_name": "name.replace(']', ']]')",
    "drivers/sqlserver/binding.py:literal": 'value.replace("\'", "\'\'")',
    "drivers/sqlserver/names.py:_quoted": 'name.replace("\'", "\'\'")',
    "ledger/locations.py:_quote": "name.replace('`', '``')",
    # Delta's predicates and properties.
    "ledger/delta_rs/quoting.py:literal": 'text.replace("\'", "\'\'")',
    "ledger/delta_rs/quoting.py:quote": "name.replace('\"', '\"\"')",
    "ledger/spark/quoting.py:literal": "text.replace('\\\\', '\\\\\\\\')",
    # Not SQL: a command line of systemd's.
    "schedule/render.py:_systemd": r"""text.replace('\\', '\\\\')""",
    # A placeholder of psycopg's, and an ODBC connection string.
    "drivers/postgresql/statements.py:_sent": "str(each).replace('%', '%%')",
    "drivers/sqlserver/dsn.py:_brace": "value.replace('}', '}}')",
}
SENDERS = {"execute", "executemany", "copy", "script", "sql"}
_BUILT = (ast.JoinedStr, ast.BinOp)


def _places(path: Path) -> Iterator[Place]:
    """Each node of a source, with its file and the innermost function that it is in."""
    name = path.relative_to(PACKAGE).as_posix()

    def walk(node: ast.AST, function: str) -> Iterator[Place]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) else function
            yield f"{name}:{inner}", child
            yield from walk(child, inner)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), "")


PLACES = [place for path in sorted(PACKAGE.rglob("*.py")) for place in _places(path)]


def _pieces(node: ast.AST) -> str | None:
    """The fixed texts of an expression that puts a text together; None for any other."""
    match node:
        case ast.JoinedStr():
            return _fixed(node)
        case ast.BinOp(op=ast.Mod() | ast.Add()):
            return _fixed(node)
        case ast.Call(func=ast.Attribute(value=value, attr="format" | "join" | "replace")):
            return _fixed(value)
    return None


def _fixed(node: ast.AST) -> str:
    constants = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return " ".join(value for value in constants if isinstance(value, str))


def test_texts_of_sql_are_put_together_in_the_named_places_only() -> None:
    found = {place for place, node in PLACES if _SQL.search(_pieces(node) or "")}

    assert found == set(SENT) | TOLD


def test_braces_of_statements_are_filled_in_the_named_places_only() -> None:
    found = {
        place
        for place, node in PLACES
        if isinstance(node, ast.Attribute)
        and node.attr in {"format", "format_map"}
        and place.startswith(("drivers/postgresql", "drivers/sqlserver", "stores/", "queues/"))
        and not place.startswith("queues/rabbitmq")
    }

    assert found == FILLED


def test_nothing_is_sent_that_is_put_together_on_the_spot() -> None:
    for place, node in PLACES:
        match node:
            case ast.Call(func=ast.Attribute(attr=attr), args=[text, *_]) if attr in SENDERS:
                built = [part for part in ast.walk(text) if isinstance(part, _BUILT)]
                assert not built or place in SENT, f"{place}: {ast.unparse(node)}"


def test_signs_are_doubled_by_one_function_for_each_dialect_only() -> None:
    assert {place: ast.unparse(node) for place, node in PLACES if _doubles_a_sign(node)} == QUOTING


def _doubles_a_sign(node: ast.AST) -> bool:
    match node:
        case ast.Call(
            func=ast.Attribute(attr="replace"),
            args=[ast.Constant(value=str(sign)), ast.Constant(value=str(doubled))],
        ):
            return doubled == 2 * sign
    return False


@pytest.mark.parametrize(
    "text",
    [
        "f'DELETE FROM {table}'",
        "'SELECT * FROM ' + table",
        "'SELECT %s' % value",
        "'UPDATE {} SET a = 1'.format(table)",
        "' '.join(['x'])",
    ],
)
def test_each_way_to_put_a_text_together_is_seen(text: str) -> None:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.Expr)

    assert _pieces(node.value) is not None
    assert bool(_SQL.search(_pieces(node.value) or "")) == ("join" not in text)
