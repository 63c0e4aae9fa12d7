"""T-SQL as it is sent: it parses, takes ugly names, and locks rows only. A test lists all that
break its rule.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest
import sqlglot
from sqlglot import exp

from duesweep.core.address import SqlServerAddresses, SqlServerTable, bracket_name
from duesweep.core.policy import MAX_BATCH_ROWS, SCANNED_ROWS
from duesweep.drivers.sqlserver.binding import LONGEST_LOCK, bind, key_list, table_names
from duesweep.drivers.statements import statement, statements
from duesweep.stores.dialect import JOURNAL_TABLES, batches_lock
from duesweep.stores.kinds import SQL_SERVER_KINDS
from support.sql_statements import POSTGRESQL, SQL_SERVER, UGLY_NAME, SqlStatement, broken

ESCALATES_AT = 5_000
VALUES = re.compile(r"(?<![@\w])@([a-z]\w*)")
UGLY = SqlServerTable("my.c@ta]]og", UGLY_NAME, UGLY_NAME)
TABLES = (*JOURNAL_TABLES, "delayed", "queue", "subscriptions")
LITERALS = ("horizon", "source", "sweep_id", "first_id", "last_id", "paused", "chunk", "most")
VIEWS_OF_THE_SERVER = ("sys", "INFORMATION_SCHEMA")
# Sent by the dialects' own classes. Code for both servers sends all others, with the same values.
OWN = {
    *("claim", "count_held_back", "count_present", "describe_indexes", "explain_unclaimed"),
    *("fetch_next_due", "hold", "queue_tables", "remove", "reschedule"),
}
# sqlglot does not know it; Microsoft's own parser does.
_THROW = re.compile(r"\bTHROW \d+, N'[^']*', 1;")
ROW_VERSIONS_ARE_NOT_READ = {"UPDLOCK", "XLOCK", "READCOMMITTEDLOCK"}


def _names(kind: str) -> dict[str, str]:
    return {
        "catalog": bracket_name(UGLY.catalog),
        **dict.fromkeys(LITERALS, "N''"),
        **{
            "query": "SELECT 1 AS id",
            "key": "id",
            "slice": "0",
            "first_format": "1",
            "format": "2",
        },
        # As on SQL Server with an index on Due.
        "seek": ", FORCESEEK",
        "bounds": "(0, CONVERT(datetime, N'', 121), 1, CONVERT(datetime, N'', 121), 2)",
        "index": bracket_name(SQL_SERVER_KINDS[kind].index),
        **SQL_SERVER_KINDS[kind].names,
        **table_names(**dict.fromkeys(TABLES, UGLY)),
    }


def _text(name: str, kind: str = "sqlserver") -> str:
    return statement("sqlserver", name).format(**_names(kind))


def _texts(name: str) -> set[str]:
    """A statement for each kind of delayed table."""
    return {_text(name, kind) for kind in SQL_SERVER_KINDS}


@cache
def _parsed(text: str) -> list[exp.Expression]:
    known = _THROW.sub("SELECT 1;", text)
    return [each for each in sqlglot.parse(known, read="tsql") if each is not None]


def _hints(text: str) -> list[set[str]]:
    """The hints on each table that has some."""
    return [
        {hint.name.upper() for hint in hints.expressions}
        for parsed in _parsed(text)
        for hints in parsed.find_all(exp.WithTableHint)
    ]


# The oldest version that duesweep supports, and the newest one.
@pytest.mark.parametrize("version", ["2017", "2025"])
def test_statements_fit_the_grammar_of_microsofts_own_parser(version: str, tmp_path: Path) -> None:
    for kind in SQL_SERVER_KINDS:
        for each in SQL_SERVER:
            (tmp_path / f"{kind}_{each.name}.sql").write_text(_text(each.name, kind), "utf-8")
    # So that silence means something: this one is wrong inside a block.
    (tmp_path / "wrong.sql").write_text("BEGIN TRY CREATE NONCLUSTERD INDX x ON t (a) END TRY")

    done = subprocess.run(
        [
            Path(sys.executable).with_name("maxdop"),
            "--check",
            "--parser-version",
            version,
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
    )

    refused = [line for line in done.stderr.splitlines() if "could not be parsed" in line]
    assert [line for line in refused if "wrong.sql" not in line] == []
    assert len(refused) == 1


def test_statement_names_these_tables_only_whatever_their_names_are() -> None:
    def fault(each: SqlStatement) -> str | None:
        try:
            parsed = [part for text in _texts(each.name) for part in _parsed(text) or [None]]
        except (KeyError, ValueError, sqlglot.errors.SqlglotError) as error:
            return f"{type(error).__name__} {error}"
        # It takes unknown statements for commands, unread.
        unread = [
            part and part.sql() for part in parsed if not part or isinstance(part, exp.Command)
        ]
        if unread:
            return f"was not read: {unread}"
        tables = {
            (table.catalog, table.db, table.name)
            for part in parsed
            if part is not None
            for table in part.find_all(exp.Table)
            if table.catalog and table.db not in VIEWS_OF_THE_SERVER
        }
        return f"names {tables}" if tables - {(UGLY.catalog, UGLY.schema, UGLY.table)} else None

    assert broken(fault, SQL_SERVER) == []


def test_statement_that_skips_locked_rows_sees_locks_where_the_database_has_row_versions() -> None:
    """Without these hints, READ_COMMITTED_SNAPSHOT lets it read rows that another one removes."""

    def fault(each: SqlStatement) -> str | None:
        hints = _hints(_text(each.name))
        skipping = [given for given in hints if "READPAST" in given]
        # So that the rule cannot hold for want of hints that the parser finds.
        if len(skipping) != each.code.count("READPAST"):
            return "a hint READPAST was not found"
        blind = [given for given in skipping if not given & ROW_VERSIONS_ARE_NOT_READ]
        return f"{blind} read row versions" if blind else None

    assert broken(fault, SQL_SERVER) == []


def test_plan_waits_for_no_batch_where_the_database_has_no_row_versions() -> None:
    """Nor does the question that is asked before each sweep."""

    def fault(each: SqlStatement) -> object:
        return re.findall(r"\{(?:attempts|delayed)\} \w+(?! WITH \()\b.*", each.code)

    before = [each for each in SQL_SERVER if each.topic == "plan"] + _named("find_gone_attempts")
    assert broken(fault, before) == []


def test_counters_that_others_hold_are_pruned_later() -> None:
    [each] = _named("prune_attempts")

    assert {"READPAST", "READCOMMITTEDLOCK", "ROWLOCK"} in _hints(_text(each.name))


def test_table_with_a_trigger_takes_each_statement() -> None:
    """It refuses OUTPUT without INTO (334)."""

    def fault(each: SqlStatement) -> object:
        return re.findall(r"\bOUTPUT (?:inserted|deleted)\b(?!.* INTO @).*", each.code)

    # As the transport receives.
    others = [each for each in SQL_SERVER if not each.name.startswith("receive")]
    assert broken(fault, others) == []


def test_statement_that_changes_or_locks_messages_of_some_dues_is_forced_to_seek_them() -> None:
    """A scan would lock the rows that it reads, and from 5,000 locks on the table."""

    def fault(each: SqlStatement) -> object:
        hints = [given for text in _texts(each.name) for given in _hints(text)]
        taking = [given for given in hints if "ROWLOCK" in given]
        return [given for given in taking if "FORCESEEK" not in given] or not taking

    of_dues = _named("claim", "read_span", "move_span", "move_recoverable_span", "remove")
    of_dues += _named("seek_and_remove_span", "hold", "reschedule", "fetch_next_due")
    assert broken(fault, of_dues) == []


def test_no_statement_asks_for_a_lock_on_a_table() -> None:
    assert broken(lambda each: re.findall("TABLOCK|PAGLOCK", each.code), SQL_SERVER) == []


def test_procedure_is_the_servers_own_whatever_schemas_a_database_has() -> None:
    called = [
        name
        for text in statements("sqlserver").values()
        for name in re.findall(r"EXEC (?:@\w+ = )?(\S+)", text)
    ]

    assert {"sys.sp_getapplock", "sys.sp_releaseapplock"} <= set(called)
    assert all(name.startswith("sys.") for name in called)


def test_claim_locks_rows_only_and_skips_locked_rows() -> None:
    def fault(each: SqlStatement) -> str | None:
        for text in _texts(each.name):
            # The text after the name of the delayed table, up to the end of its hints.
            after = text[text.index("WITH (", text.index(UGLY.sql)) :]
            hints = after[len("WITH (") : after.index(")")]
            if {*hints.split(", ")} - {"FORCESEEK"} != {"UPDLOCK", "READPAST", "ROWLOCK"}:
                return hints
        return None

    assert broken(fault, _named("claim", "move_span", "remove_first", "fetch_next_due")) == []


def test_statement_takes_fewer_rows_than_make_the_server_lock_the_table() -> None:
    def tops(each: SqlStatement) -> set[int]:
        # The largest TOP belongs to the list of Dues, which is no table.
        return {*map(int, re.findall(r"TOP \((\d+)\)", each.code))} - {2_147_483_647}

    looking, deleting = (
        _named("claim", "fetch_next_due"),
        _named("delete_settled", "prune_attempts"),
    )
    assert broken(lambda each: max(tops(each), default=0) != SCANNED_ROWS, looking) == []
    assert (
        broken(lambda each: max(tops(each), default=ESCALATES_AT) >= ESCALATES_AT, deleting) == []
    )
    assert 3 * SCANNED_ROWS < ESCALATES_AT, "each row has a key, and may be on a page of its own"
    assert MAX_BATCH_ROWS < SCANNED_ROWS


def test_due_is_read_and_compared_as_what_it_is() -> None:
    stored_by_a_user = {"store_message", "store_msmq_message", "store_timeout"}

    def fault(each: SqlStatement) -> str | None:
        # SQL Server refuses more than three digits of a second there; ours have seven.
        if "CONVERT(datetime," in each.text and each.name not in stored_by_a_user:
            return "reads a text as datetime"
        # The server would convert the column, and might not use its index.
        if re.search(r"\{due\} *[=<>]+ *CONVERT\(datetime2", each.text):
            return "compares Due with another type"
        return None

    assert broken(fault, SQL_SERVER) == []


def _named(*names: str) -> list[SqlStatement]:
    found = [each for each in SQL_SERVER if each.name in names]
    assert len(found) == len(names)
    return found


def _table(address: str) -> SqlServerTable:
    return SqlServerAddresses("Sales.Orders", "dbo", "my.c@ta]og").parse(address)


def test_names_are_bracketed_and_stand_in_literals_with_their_quotes_doubled() -> None:
    assert _table("my.tb[e@[my.[sch@ma]@[a]]b]").sql == "[a]]b].[my.[sch@ma].[my.tb[e]"
    assert _table("a]b").sql == "[my.c@ta]]og].[dbo].[a]]b]"
    assert table_names(queue=_table("it's")) == {
        "queue": "[my.c@ta]]og].[dbo].[it's]",
        "queue_local": "[dbo].[it's]",
        "queue_literal": "[my.c@ta]]og].[dbo].[it''s]",
        "queue_schema": "dbo",
        "queue_lock": "[my.c@ta]]og].[dbo].[it''s]_lock",
    }


def test_lock_of_a_long_name_is_cut_where_the_server_cuts_the_transports() -> None:
    table = SqlServerTable("c" * 100, "'" * 50, "t" * 100)
    lock = table_names(queue=table)["queue_lock"]

    assert len(f"{table.sql}_lock") > LONGEST_LOCK
    assert lock.replace("''", "'") == f"{table.sql}_lock"[:LONGEST_LOCK]
    assert lock.replace("''", "").count("'") == 0


def test_names_of_a_sweeps_own_locks_are_never_cut() -> None:
    name = f"{batches_lock(UUID(int=2**128 - 1))}/exhausted"

    assert len(name) <= LONGEST_LOCK


def test_name_with_braces_percent_and_at_signs_takes_no_values_place() -> None:
    names = {"leases": "[@lease {source} %(x)s ?]"}

    text, values = bind("give_lease_back", names, {"name": "7", "holder": "8"})

    assert text.startswith(
        "DELETE FROM [@lease {source} %(x)s ?]\nWHERE name = ? AND holder = ? OR"
    )
    assert values == ["7", "8"]


def test_value_that_stands_twice_is_sent_twice_in_the_order_of_the_text() -> None:
    values = {"exhausted": 1, "over_limit": 2, "sweep_id": "s"}

    text, sent = bind("add_exhausted", {"sweeps": "[s]"}, values)

    assert (text.count("?"), sent) == (3, [1, 2, "s"])


def test_statement_refuses_values_that_it_does_not_take() -> None:
    with pytest.raises(ValueError, match="give_lease_back takes"):
        bind("give_lease_back", {"leases": "[s]"}, {"name": "a", "lock": "b"})


def test_statement_takes_each_value_that_postgresql_needs() -> None:
    taken = {each.name: set(VALUES.findall(each.text)) for each in SQL_SERVER}

    def fault(each: SqlStatement) -> object:
        needed = set(re.findall(r"%\((\w+)\)s", each.text))
        is_shared = each.name in taken and each.name not in OWN
        return is_shared and needed - taken[each.name]

    assert broken(fault, POSTGRESQL) == []


def test_value_that_stands_in_a_comment_only_is_one_that_postgresql_needs() -> None:
    others = {each.name: set(re.findall(r"%\((\w+)\)s", each.text)) for each in POSTGRESQL}

    def fault(each: SqlStatement) -> object:
        unused = set(VALUES.findall(each.comment)) - set(VALUES.findall(each.code))
        return unused - others.get(each.name, set())

    assert broken(fault, SQL_SERVER) == []
    assert bind("doctor_references", {}, dict.fromkeys(("name", "schema", "table"), "a"))[1] == [
        "a"
    ]


@pytest.mark.parametrize(
    "keys",
    [
        ["1", "2,3", "4;5"],
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
