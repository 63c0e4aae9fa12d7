"""The statements and their files: each has a comment, is used, parses, and takes known names and
values only. A test lists all that break its rule.
"""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

import duesweep
from duesweep.core.address import TableName
from duesweep.drivers.statements import expanded, statement, topics
from duesweep.stores.kinds import POSTGRESQL_KINDS
from duesweep.stores.sql_journal import FEWEST_AT_ONCE
from support.sql_statements import ALL, DIALECTS, POSTGRESQL, UGLY_NAME, SqlStatement, broken

PACKAGE = Path(duesweep.__file__).parent
NAMES = {dialect: {each.name for each in ALL if each.dialect == dialect} for dialect in DIALECTS}
# Spark puts this into a query of its own, and can bind no values.
FOR_JDBC = {"plan_claim_keys"}
LITERALS = ("horizon", "source", "paused", "chunk", "most")
# What PostgreSQL's statements hold in braces: tables, columns, and SQL that stands for a name.
POSTGRESQL_NAMES = {
    **dict.fromkeys(
        ("attempts", "bindings", "changes", "delayed", "journal"), TableName(UGLY_NAME, UGLY_NAME)
    ),
    **dict.fromkeys(
        ("leases", "limits", "pauses", "queue", "subscriptions", "sweeps"),
        TableName(UGLY_NAME, UGLY_NAME),
    ),
    **dict.fromkeys(("id", "headers", "body", "due", "destination", "pausable", "key"), '"c""ol"'),
    **dict.fromkeys(("forward", "planned_forward"), "'text'"),
    **{"bounds": "(0, now(), 'a', now(), 'b', true)"},
    **{"text_begin": "replace(", "text_end": r", chr(129), E'\\x81')"},
    **{"index": '"in""dex"', "utc": " AT TIME ZONE 'UTC'", "query": "SELECT 1 AS id", "slice": "0"},
}
LOCKING = re.compile(
    r"FOR (?:NO KEY |KEY )?(?:UPDATE|SHARE)|UPDLOCK"
    r"|pg_\w*advisory\w*lock\(\('x'|@LockOwner = 'Transaction'"
)
# What sqlglot does not know, and takes for a command, unread.
UNREAD = re.compile(
    r"SET CONSTRAINTS ALL IMMEDIATE|ALTER TABLE .* SET STORAGE EXTERNAL"
    r"|DO \$\$BEGIN PERFORM pg_advisory_xact_lock\(hashtextextended\('\S+', 0\)\); END\$\$"
)


def test_dialects_have_the_same_statements_except_those_that_only_one_needs() -> None:
    only_postgresql = {
        # a session's time zone and memory; queue tables are copied into
        *(
            "set_zone",
            "session_zone",
            "writer_zones",
            "zones_agree",
            "set_lock_wait",
        ),
        *("describe_schema", "lock_creation", "insert_messages"),
        # messages are moved in one statement
        *("move", "move_from_places", "find_delete_hooks", "check_constraints_at_once"),
        # a removal is tried, of a message that was locked
        "lock_any",
        # of all tables at once; they are of one database there
        "describe_tables",
        # the instant of a Due depends on the writers' zone
        "read_instants",
        # the hint is part of T-SQL's statement
        "set_first_rows_fast",
    }
    only_sqlserver = {
        # the index on Due of a table that is there; what queue tables lack
        *("create_due_index", "queue_indexes"),
        # by spans of Due; the MSMQ store; two shapes of queue tables
        *("count_waiting", "count_some_waiting", "count_held_back"),
        *("remove_first", "follow_rescheduled"),
        *("create_msmq_delayed", "store_msmq_message", "raise_retry_counts", "remove_by_id"),
        *("set_span", "read_span", "move_span", "move_recoverable_span", "remove_span"),
        *("seek_and_remove_span", "look_at_sweep", "refuse_triggers", "refuse_dropped"),
        *("refuse_failures", "refuse_new_failures"),
        # a transaction in one request
        *("begin_at_once", "fence_or_end", "commit_at_once"),
        *("hold_by_id", "count_present_by_id", "reschedule_by_id"),
        *("insert_message", "insert_recoverable_message", "send_recoverable"),
        "receive_with_columns",
        *(
            "describe_catalog",
            "describe_table",
            "describe_long_name",
            "describe_rights",
            *("describe_delayed", "describe_server"),
        ),
        *("find_table", "read_lists", "hidden_tables"),
        *("last_message", "count_arrived", "probe_queue"),
        # a removal is tried
        "remove_any",
    }
    # The doctor asks each server what only that one can answer.
    core = {d: {name for name in NAMES[d] if not name.startswith("doctor_")} for d in DIALECTS}

    assert core["postgresql"] - NAMES["sqlserver"] == only_postgresql
    assert core["sqlserver"] - NAMES["postgresql"] == only_sqlserver


def test_comment_says_in_two_lines_what_a_statement_does_and_which_locks_it_asks_for() -> None:
    def fault(each: SqlStatement) -> str | None:
        if not re.match(r"-- [A-Z][a-z]+s .{10,}\n", each.text):
            return "the first line does not say what it does"
        # A table's name may hold a line break: it would end the comment.
        if re.search("[{}%]", each.comment):
            return "the comment has a name or a value"
        if re.match(r"(?:--.*\n){3}", each.text):
            return "the comment has more than two lines"
        if LOCKING.search(each.code) and not re.search("[Ll]ock|hold", each.comment):
            return "the comment does not say what it locks"
        return None

    assert broken(fault) == []


def test_every_statement_is_used() -> None:
    tools = PACKAGE.with_name("duesweep_transport")
    files = [*PACKAGE.rglob("*.py"), *tools.rglob("*.py")]
    sources = (path.read_text(encoding="utf-8") for path in files)
    named = {name for source in sources for name in re.findall(r'"(\w+)"', source)}

    assert broken(lambda each: each.name not in named and "is not used") == []


def test_literals_stand_in_queries_for_jdbc_only_which_take_no_values() -> None:
    def fault(each: SqlStatement) -> str | None:
        if each.name not in FOR_JDBC:
            found = [name for name in LITERALS if f"{{{name}}}" in each.text]
            return f"{found} are not bound" if found else None
        if ";" in each.code:
            return "cannot be a subquery"
        return "takes values" if re.search(r"%\(|(?<!@)@[a-z]", each.code) else None

    assert {each.name for each in ALL} >= FOR_JDBC
    assert broken(fault) == []


def test_statement_of_postgresql_parses_with_ugly_names_and_names_these_tables_only() -> None:
    literals = dict.fromkeys(LITERALS, "''")

    def fault(each: SqlStatement) -> str | None:
        marked = re.sub(r"%\(\w+\)s", "$1", each.text).replace("%%", "%")
        try:
            parsed = sqlglot.parse(marked.format(**POSTGRESQL_NAMES, **literals), read="postgres")
        except (KeyError, ValueError, sqlglot.errors.SqlglotError) as error:
            return f"{type(error).__name__} {error}"
        unread = [part.sql(comments=False) for part in parsed if isinstance(part, exp.Command)]
        if not any(parsed) or not all(map(UNREAD.fullmatch, unread)):
            return f"was not read: {unread}"
        tables = {
            (table.db, table.name)
            for part in parsed
            if part is not None
            for table in part.find_all(exp.Table)
            if table.db
        }
        return f"names {tables}" if tables - {(UGLY_NAME, UGLY_NAME)} else None

    assert broken(fault, POSTGRESQL) == []


def test_statement_of_postgresql_is_one_and_binds_values_by_name() -> None:
    def fault(each: SqlStatement) -> str | None:
        if each.name.startswith("create_"):
            return "takes values" if "%" in each.text else None
        if "%" in re.sub(r"%\([a-z_]+\)s|%%", "", each.text):
            return "a value has no name"
        if each.name not in FOR_JDBC and each.code.find(";") != len(each.code) - 1:
            return "is not one statement"
        return None

    assert broken(fault, POSTGRESQL) == []


ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "lib" / "duesweep" / "drivers" / "sql"


@pytest.mark.parametrize("use", ["{{old}}", "{{old: 1; 2}}", "{{old: 1\n  2\n}}"])
def test_fragment_with_other_values_than_it_takes_is_refused(use: str) -> None:
    with pytest.raises(ValueError, match="fragment old takes 1 texts"):
        expanded(use, {"old": "$1 < $1"})


def test_every_fragment_is_used_by_several_statements_or_fragments_or_by_a_kind_of_table() -> None:
    of_kinds = {text for kind in POSTGRESQL_KINDS.values() for text in kind.names.values()}
    for dialect in DIALECTS:
        text = "".join(topics(dialect).values())
        for name in re.findall(r"^-- fragment: (\w+)$", text, re.MULTILINE):
            uses = len(re.findall(rf"\{{\{{{name}\b", text))
            assert uses > 1 or f"{{{{{name}}}}}" in of_kinds, f"{dialect}: {name}"


def test_head_of_a_file_says_where_its_other_fragments_are() -> None:
    for dialect in DIALECTS:
        files = topics(dialect)
        places = {
            name: f"{topic}.sql"
            for topic, text in files.items()
            for name in re.findall(r"^-- fragment: (\w+)$", text, re.MULTILINE)
        }
        for topic, text in files.items():
            used = {*re.findall(r"\{\{(\w+)", text)}
            others = {name: places[name] for name in used if places[name] != f"{topic}.sql"}
            head = re.split(r"^-- (?:name|fragment): ", text, maxsplit=1, flags=re.MULTILINE)[0]
            _, _, said = head.replace("\n-- ", " ").partition("Fragments of other files: ")

            assert dict(_places(said)) == others, (dialect, topic)


def _places(said: str) -> Iterator[tuple[str, str]]:
    for names, file in re.findall(r"([\w, ]+) \((\w+\.sql)\)", said):
        for name in names.split(", "):
            yield name.strip(), file


def test_no_mark_of_a_fragment_is_left_in_a_statement() -> None:
    assert broken(lambda each: re.findall(r"\{\{|\}\}|\$\d|fragment", each.text)) == []


def test_unknown_name_is_refused_with_its_dialect() -> None:
    with pytest.raises(LookupError, match='unknown statement "none" in sql/postgresql/'):
        statement("postgresql", "none")


def test_dialects_have_the_same_topics() -> None:
    first, *others = [topics(dialect).keys() for dialect in DIALECTS]

    assert all(other == first for other in others)


def test_no_name_stands_twice() -> None:
    counts = Counter((each.dialect, each.name) for each in ALL)

    assert [name for name, count in counts.items() if count > 1] == []


def test_dialects_have_a_statement_in_the_same_file_and_order() -> None:
    places = {
        dialect: [(each.topic, each.name) for each in ALL if each.dialect == dialect]
        for dialect in DIALECTS
    }
    both = {name for _, name in places["postgresql"]} & {name for _, name in places["sqlserver"]}
    postgresql, sqlserver = (
        [place for place in places[dialect] if place[1] in both] for dialect in DIALECTS
    )

    assert postgresql == sqlserver


def test_fewer_deleted_rows_than_a_statement_may_delete_are_the_last() -> None:
    deleting = [each for each in ALL if each.name in {"delete_settled", "delete_changes"}]
    most = [int(n) for each in deleting for n in re.findall(r"(?:LIMIT|TOP \()\s?(\d+)", each.code)]

    assert len(most) == len(deleting) == 4
    assert min(most) >= FEWEST_AT_ONCE
