"""T-SQL as it is sent: it parses, takes ugly names, and locks rows only."""

import re

import pytest
import sqlglot
from sqlglot import exp

from duesweep.core.address import SqlServerTable, bracket_name
from duesweep.core.policy import MAX_BATCH_ROWS, SCANNED_ROWS
from duesweep.drivers.sqlserver.binding import bind, key_list
from duesweep.drivers.sqlserver.connection import _decode_utf16
from duesweep.drivers.sqlserver.names import creation, table_names
from duesweep.sql import statement, statements
from duesweep.stores.sqlserver.kinds import MSMQ, SQL_PERSISTENCE, TRANSPORT, SqlServerTableKind

ESCALATES_AT = 5_000
NAMES = sorted(statements("sqlserver"))
UGLY = SqlServerTable("my.c@ta]]og", "my.[sch@ma", "my.tb[e 'q' \"d\" a]b")
TABLES = (
    *("attempts", "bindings", "changes", "delayed", "journal", "limits", "pauses", "queue"),
    *("subscriptions", "sweeps"),
)
KINDS = {"transport": TRANSPORT, "msmq": MSMQ, "timeouts": SQL_PERSISTENCE}


def _names(kind: SqlServerTableKind = TRANSPORT) -> dict[str, str]:
    names = {"catalog": bracket_name(UGLY.catalog), "horizon": "N''", "source": "N''"}
    names |= {
        **dict.fromkeys(("sweep_id", "first_id", "last_id", "paused"), "N''"),
        "query": "SELECT 1 AS id",
        "key": "id",
        "slice": "0",
        "index": bracket_name(kind.index),
        **kind.names,
    }
    return names | table_names(**dict.fromkeys(TABLES, UGLY))


def _text(name: str, kind: SqlServerTableKind = TRANSPORT) -> str:
    bounds = "(0, CONVERT(datetime, N'', 121), 1, CONVERT(datetime, N'', 121), 2)"
    return statement("sqlserver", name).replace("/* bounds */", bounds).format(**_names(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_statement_parses_as_t_sql_with_ugly_names(name: str, kind: str) -> None:
    parsed = sqlglot.parse(_text(name, KINDS[kind]), read="tsql")

    assert any(parsed)
    # What it does not know it takes for a command, unread.
    assert not [part.sql() for part in parsed if isinstance(part, exp.Command)]


@pytest.mark.parametrize(
    ("part", "quoted"),
    [
        ("my.tb[e", "[my.tb[e]"),
        ("my.[sch@ma", "[my.[sch@ma]"),
        ("a]b", "[a]]b]"),
        ('it\'s "so"', '[it\'s "so"]'),
        ("{due}", "[{due}]"),
    ],
)
def test_ugly_name_stands_quoted_in_the_statement_that_is_sent(part: str, quoted: str) -> None:
    table = SqlServerTable(part, part, part)

    text, _ = bind("insert_message", {"queue": table.sql}, {"id": "", "headers": "", "body": b""})

    assert text == (
        f"INSERT INTO {quoted}.{quoted}.{quoted} (Id, Headers, Body) VALUES (?, ?, ?);\n"
    )


def test_ugly_name_stands_quoted_in_literals_too() -> None:
    table = SqlServerTable("db", "it's", "a]b'c")

    text = creation("create_queue", queue=table)

    assert "OBJECT_ID(N'[db].[it''s].[a]]b''c]', 'U')" in text
    assert "@Resource = N'[db].[it''s].[a]]b''c]_lock'" in text
    assert "CREATE TABLE [db].[it's].[a]]b'c] (" in text


def test_name_with_braces_percent_and_at_signs_takes_no_values_place() -> None:
    names = _names() | {"sweeps": "[@sweep_id {source} %(x)s ?]"}

    text, values = bind("delete_sweep", names, {"sweep_id": "7"})

    assert text == "DELETE FROM [@sweep_id {source} %(x)s ?] WHERE sweep_id = ?;\n"
    assert values == ["7"]


def test_value_that_stands_twice_is_sent_twice_in_the_order_of_the_text() -> None:
    values = {"exhausted": 1, "over_limit": 2, "sweep_id": "s"}

    text, sent = bind("add_exhausted", _names(), values)

    assert (text.count("?"), sent) == (3, [1, 2, "s"])


def test_statement_refuses_values_that_it_does_not_take() -> None:
    with pytest.raises(ValueError, match="unlock takes"):
        bind("unlock", {}, {"lock": "a", "sweep_id": "b"})


@pytest.mark.parametrize("name", ["claim", "remove_first", "fetch_next_due"])
@pytest.mark.parametrize("kind", KINDS)
def test_claim_locks_rows_only_and_skips_locked_rows(name: str, kind: str) -> None:
    (hints,) = re.findall(r"\bWITH \(([^)]+)\)", _delayed_only(_text(name, KINDS[kind])))

    assert set(hints.split(", ")) == {"UPDLOCK", "READPAST", "ROWLOCK"}


@pytest.mark.parametrize("name", ["remove", "remove_by_id", "raise_retry_counts", "find_message"])
def test_statement_on_locked_rows_asks_for_row_locks(name: str) -> None:
    assert "ROWLOCK" in _text(name)


@pytest.mark.parametrize("name", NAMES)
def test_statement_that_skips_locked_rows_sees_locks_where_the_database_has_row_versions(
    name: str,
) -> None:
    """Without these hints, READ_COMMITTED_SNAPSHOT lets it read what a lock's holder removes."""
    for parsed in sqlglot.parse(_text(name), read="tsql"):
        assert parsed is not None
        for hints in parsed.find_all(exp.WithTableHint):
            given = {hint.name.upper() for hint in hints.expressions}
            assert "READPAST" not in given or given & {"UPDLOCK", "XLOCK", "READCOMMITTEDLOCK"}


def test_hints_are_found_in_statements() -> None:
    """So that the test above cannot pass for want of hints."""
    hinted = [name for name in NAMES if "READPAST" in _text(name)]

    assert len(hinted) > 20
    for name in hinted:
        parsed = filter(None, sqlglot.parse(_text(name), read="tsql"))
        found = [
            h.name.upper()
            for p in parsed
            for t in p.find_all(exp.WithTableHint)
            for h in t.expressions
        ]
        code = re.sub("--.*", "", _text(name))
        assert found.count("READPAST") == code.count("READPAST")


@pytest.mark.parametrize("name", NAMES)
def test_no_statement_asks_for_a_lock_on_a_table(name: str) -> None:
    assert not re.search("TABLOCK|PAGLOCK", _text(name))


@pytest.mark.parametrize("name", ["claim", "fetch_next_due"])
def test_claim_looks_at_fewer_rows_than_make_the_server_lock_the_table(name: str) -> None:
    text = _text(name)

    # The TOP of all is that of the list of Dues, which is no table.
    tops = {*map(int, re.findall(r"TOP \((\d+)\)", text))} - {2_147_483_647}
    assert max(tops) == SCANNED_ROWS < ESCALATES_AT
    assert 2 * SCANNED_ROWS < ESCALATES_AT, "each row may be on a page of its own"
    assert MAX_BATCH_ROWS < SCANNED_ROWS


@pytest.mark.parametrize("name", ["delete_settled", "prune_attempts"])
def test_deletion_of_many_rows_goes_by_pieces_under_the_escalation_threshold(name: str) -> None:
    assert int(re.findall(r"TOP \((\d+)\)", _text(name))[0]) < ESCALATES_AT


@pytest.mark.parametrize(
    "keys",
    [
        ["1", "2"],
        ["a,b", "c\\d"],
        ["tab\t", "unit\x1f", "fullwidth\N{FULLWIDTH COMMA}"],
        ["😀", "é", "'"],
    ],
)
def test_list_of_keys_is_split_where_no_key_has_the_separator(keys: list[str]) -> None:
    text, separator = key_list(keys)

    assert text is not None
    assert text.split(separator) == keys


def test_list_of_no_keys_is_null() -> None:
    assert key_list([])[0] is None


def _delayed_only(text: str) -> str:
    """What follows the name of the delayed table, up to the end of its hints."""
    start = text.index("WITH (", text.index(UGLY.sql))
    return text[start : text.index(")", start) + 1]


@pytest.mark.parametrize("name", NAMES)
def test_no_text_with_seven_digits_of_a_second_is_read_as_datetime(name: str) -> None:
    """SQL Server refuses more than three there; only what a user stores has three."""
    if name not in {"store_message", "store_msmq_message", "store_timeout"}:
        assert "CONVERT(datetime," not in statement("sqlserver", name)


@pytest.mark.parametrize("name", NAMES)
def test_due_is_not_compared_with_another_type(name: str) -> None:
    """The server would convert the column, and might not use its index."""
    assert not re.search(r"\{due\} *[=<>]+ *CONVERT\(datetime2", statement("sqlserver", name))


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        ("Grüße 😀".encode("utf-16-le"), "Grüße 😀"),
        (b"\x00\xd8", r"\x00\xd8"),
        (b"a\x00\x00\xdc", r"a\x00\xdc"),
        (None, None),
    ],
)
def test_half_a_surrogate_pair_is_shown_and_fails_no_task(
    stored: bytes | None, text: str | None
) -> None:
    assert _decode_utf16(stored) == text


@pytest.mark.parametrize(
    "name",
    [
        *("claim", "count_waiting", "count_some_waiting"),
        *("read_some_attempts", "read_attempts", "last_message", "count_arrived"),
    ],
)
def test_task_that_reads_what_other_slices_write_waits_for_none_of_them(name: str) -> None:
    text = _text(name)
    hints = re.findall(r"\bWITH \(([A-Z, ]+)\)", text)

    assert len(hints) == text.count(UGLY.sql)
    assert all("READPAST" in hint for hint in hints)
