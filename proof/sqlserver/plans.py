"""Sweeps over a large delayed table, and the server's plans and locks after them."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from duesweep.drivers.sqlserver.dsn import odbc
from duesweep_testing.builders import delayed_row
from proof.sqlserver.facts import FACTS
from support.sqlserver_server import endpoint_in_sqlserver, sql_server

_QUEUES = ("Billing", "Shipping", "Invoicing", "Accounting")
_SHOWPLAN = "{http://schemas.microsoft.com/sqlserver/2004/07/showplan}"
_SCANS = {"Table Scan", "Clustered Index Scan", "Index Scan"}
_MOST_SHOWN = 120
# A small tick has up to this many messages; the last sweep has several full batches.
_MOST_IN_A_TICK, _BATCHES = 40, 5
# Each of these ticks has a message that takes the careful form of a batch.
_UNUSUAL_EVERY = 10
_FIRST_ROWS = 1_000


def ask_plans(
    dsn: str, options: Sequence[str], folder: Path, *, rows: int, ticks: int
) -> Iterator[tuple[str, str, str]]:
    """Questions, with their answers and the expected ones, after `ticks` sweeps of an endpoint
    whose delayed table has about `rows` messages that are not due.
    """
    with sql_server(dsn, options) as server:
        endpoint = endpoint_in_sqlserver(server, folder, "dbo").set_up(*_QUEUES)
        stored = _fill(endpoint, rows)
        codes = Counter(_tick(endpoint, number) for number in range(ticks))
        codes[_large_sweep(endpoint)] += 1
        ended = ", ".join(f"{code} ({count})" for code, count in sorted(codes.items()))
        yield f"Exit codes of {ticks + 1} sweeps over {stored:,} messages", ended, "0 (*"
        yield from _asked(endpoint, ticks)


def _fill(endpoint: Any, rows: int) -> int:
    """Messages for years to come. How many there are."""
    due = endpoint.due_in(86_400 * 365)
    endpoint.load([replace(delayed_row("Billing"), due=due) for _ in range(_FIRST_ROWS)])
    stored = _FIRST_ROWS
    while stored < rows:
        endpoint.execute(
            f"INSERT INTO {endpoint.delayed} (Headers, Body, Due)"
            f" SELECT Headers, Body, DATEADD(second, {stored}, Due) FROM {endpoint.delayed}"
        )
        stored *= 2
    # A stand-in keeps them by itself.
    with suppress(odbc().Error):
        endpoint.execute(f"UPDATE STATISTICS {endpoint.delayed}")
        endpoint.execute("ALTER DATABASE SCOPED CONFIGURATION CLEAR PROCEDURE_CACHE")
    return stored


def _tick(endpoint: Any, number: int) -> int:
    due = endpoint.due_in(-1)
    is_unusual = number % _UNUSUAL_EVERY == 0
    queues = [_QUEUES[i % len(_QUEUES)] for i in range(1 + number % _MOST_IN_A_TICK)]
    endpoint.load([replace(delayed_row(one), due=due) for one in queues])
    if is_unusual:
        endpoint.delay(headers="no headers")
    # Two commands that change single messages, in ticks that the sweep finds usual.
    if number == 1:
        key = endpoint.delay(due_in_seconds=600)
        endpoint.run("reschedule", key, "--to", "+1h", "--yes")
        endpoint.run("cancel", key, "--yes")
    return int(endpoint.run("sweep", "--json", retry__max_attempts=1).code)


def _large_sweep(endpoint: Any) -> int:
    due = endpoint.due_in(-60)
    for _ in range(_BATCHES):
        endpoint.load([replace(delayed_row(_QUEUES[i % 4]), due=due) for i in range(1_000)])
    return int(endpoint.run("sweep", "--json").code)


def _asked(endpoint: Any, ticks: int) -> Iterator[tuple[str, str, str]]:
    question = "Statements of sweeps and commands that read the whole delayed table"
    try:
        escalated = endpoint.fetch(_statement("escalations"), endpoint.delayed)[0].escalations
        plans = endpoint.fetch(_statement("plans"), f"%{endpoint.server.database.name}%")
    except odbc().Error as error:
        yield question, f"not answered: {error.args[-1]}", "none"
        return
    table = endpoint.delayed.rpartition(".[")[2].rstrip("]")
    scanning = [text for plan in plans for text in scans(plan.plan_xml or "", table)]
    yield question, "; ".join(dict.fromkeys(scanning)) or "none", "none"
    sorting = [text for plan in plans for text in sorts(plan.plan_xml or "", table)]
    yield "Statements that sort messages", "; ".join(dict.fromkeys(sorting)) or "none", "*"
    yield "Escalations of locks on the delayed table", str(escalated or 0), "0"
    texts = Counter(plan.text for plan in plans)
    yield f"Plans in the cache after {ticks} ticks", str(sum(texts.values())), "*"
    yield "Plans of the text that has most of them", str(max(texts.values(), default=0)), "[1-4]"


def _statement(name: str) -> str:
    """A question to the server's own views, from plans.sql."""
    parts = (FACTS.parent / "plans.sql").read_text("utf-8").split("-- name: ")[1:]
    named: Mapping[str, str] = {head: text for head, _, text in (p.partition("\n") for p in parts)}
    return named[name]


def scans(plan: str, table: str) -> list[str]:
    """The statements of a plan that read all of `table`."""
    return [
        f"{step.get('PhysicalOp')}: {text}"
        for text, steps in _statements(plan)
        for step in steps
        if step.get("PhysicalOp") in _SCANS and table in _tables_of(step)
    ]


def sorts(plan: str, table: str) -> list[str]:
    """The statements of a plan that read `table` and sort."""
    return [
        text
        for text, steps in _statements(plan)
        if any(step.get("PhysicalOp") == "Sort" for step in steps)
        and any(table in _tables_of(step) for step in steps)
    ]


def _statements(plan: str) -> Iterator[tuple[str, Sequence[ET.Element]]]:
    """The beginnings of a plan's statements, and their steps."""
    if not plan:
        return
    for statement in ET.fromstring(plan).iter(f"{_SHOWPLAN}StmtSimple"):
        text = " ".join(statement.get("StatementText", "").split())[:_MOST_SHOWN]
        yield text, list(statement.iter(f"{_SHOWPLAN}RelOp"))


def _tables_of(step: ET.Element) -> set[str]:
    """The tables that this step reads itself."""
    return {
        found.get("Table", "").strip("[]")
        for own in step
        if not own.tag.endswith("RelOp")
        for found in own.findall(f"{_SHOWPLAN}Object")
    }
