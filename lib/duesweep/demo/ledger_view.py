"""Shows rows of the ledger, and compares the ledger's account with the queue tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg
from rich.console import Console
from rich.table import Table

from duesweep.core.address import TableName
from duesweep.ledger.spark import SparkTables

# The width of tables that are printed into a file.
_WIDTH = 118


@dataclass(frozen=True, slots=True)
class LedgerView:
    """What to show of one ledger table: a query over `{table}`, and its title."""

    table: str
    title: str
    query: str


TOMBSTONES = LedgerView(
    "tombstones",
    "one row for every message that left the store; here one for each way of writing a destination",
    """
    SELECT outcome, substring_index(message_type, '.', -1) AS message_type, destination, queue,
           due, lateness_ms / 1000 AS late_s, attempts
    FROM (
        SELECT *, row_number() OVER (PARTITION BY destination, outcome ORDER BY due) AS position
        FROM {table}
    )
    WHERE position = 1
    ORDER BY outcome, queue, destination
    """,
)
RETRIES = LedgerView(
    "retries",
    "messages that failed and are still in the store; here two of each kind",
    """
    SELECT substring(message_key, 1, 8) AS key, attempts, last_failed_at, next_attempt_at,
           error_text
    FROM (
        SELECT *, row_number() OVER (PARTITION BY error_class ORDER BY message_key) AS position
        FROM {table}
    )
    WHERE position <= 2
    ORDER BY error_text
    """,
)
ERRORS = LedgerView(
    "errors",
    "messages out of attempts, whole, with headers and body; here two of each kind",
    """
    SELECT substring(message_key, 1, 8) AS key, attempts, substring_index(error_class, '.', -1)
           AS error_class, destination, size(headers) AS headers,
           length(headers_text) AS headers_chars, length(body) AS body_bytes
    FROM (
        SELECT *, row_number() OVER (PARTITION BY error_class ORDER BY message_key) AS position
        FROM {table}
    )
    WHERE position <= 2
    ORDER BY error_class
    """,
)
SWEEPS = LedgerView(
    "sweeps",
    "one row a sweep",
    """
    SELECT start, found, dispatched, failed, exhausted, skipped,
           lateness_p50_ms / 1000 AS late_p50_s, rows_per_second AS rows_per_s, outcome
    FROM {table} ORDER BY start
    """,
)


def show(ledger: SparkTables, view: LedgerView) -> None:
    """Print a few rows of a ledger table, and how many there are."""
    table = ledger.table(view.table)
    (count,) = ledger.spark.sql(f"SELECT count(*) FROM {table}").collect()
    shown_df = ledger.spark.sql(view.query.format(table=table))
    title = f"{view.table} ({count[0]:,}): {view.title}"
    printed = Table(title=title, title_justify="left", title_style="bold")
    rows = [[_format(value) for value in row] for row in shown_df.collect()]
    for index, name in enumerate(shown_df.columns):
        figures = all(set(row[index]) <= set("0123456789.,") for row in rows)
        printed.add_column(name, justify="right" if figures else "left")
    for row in rows:
        printed.add_row(*row)
    _print(printed)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One line of the account: how many are there, and how many the ledger has."""

    location: str
    found: int
    recorded: int

    @property
    def agrees(self) -> bool:
        """Whether the two are equal."""
        return self.found == self.recorded


def account(
    ledger: SparkTables, dsn: str, delayed: TableName, queues: Sequence[TableName], *, loaded: int
) -> Sequence[Comparison]:
    """Compare each queue table with its tombstones, and the messages in the store with those that
    have no tombstone. The table `errors` has to hold all failed messages, and `retries` none.
    """
    tombstones = ledger.table("tombstones")
    rows = ledger.spark.sql(f"SELECT queue, count(*) FROM {tombstones} GROUP BY queue").collect()
    recorded = {str(row[0]): int(row[1]) for row in rows}
    (others,) = ledger.spark.sql(
        f"SELECT count_if(outcome = 'exhausted') AS exhausted,"
        f" (SELECT count(*) FROM {ledger.table('errors')}) AS errors,"
        f" (SELECT count(*) FROM {ledger.table('retries')}) AS retries FROM {tombstones}"
    ).collect()
    with psycopg.connect(dsn) as connection:
        found = {table: _count(connection, table) for table in (*queues, delayed)}
    return [
        *(Comparison(f"queue {q}", found[q][0], recorded.pop(str(q), 0)) for q in queues),
        *(Comparison(f"queue {queue}", 0, count) for queue, count in recorded.items()),
        Comparison(
            f"store {delayed}", found[delayed][0], loaded - sum(int(row[1]) for row in rows)
        ),
        Comparison("ledger table errors", others["errors"], others["exhausted"]),
        Comparison("ledger table retries", others["retries"], 0),
        Comparison("messages twice in a table", sum(twice for _, twice in found.values()), 0),
    ]


def show_account(entries: Sequence[Comparison]) -> None:
    """Print the account."""
    table = Table()
    table.add_column("location")
    table.add_column("messages there", justify="right")
    table.add_column("the ledger says", justify="right")
    table.add_column("")
    for entry in entries:
        verdict = "agrees" if entry.agrees else "DIFFERS"
        table.add_row(entry.location, f"{entry.found:,}", f"{entry.recorded:,}", verdict)
    _print(table)


def _count(connection: psycopg.Connection[tuple[int, int]], table: TableName) -> tuple[int, int]:
    # Two messages never have the same headers: these hold the message's id.
    statement = f"SELECT count(*), count(*) - count(DISTINCT headers) FROM {table}"
    (row,) = connection.execute(statement.encode()).fetchall()
    return row


def _print(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(table)


def _format(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
