"""Messages are due and nothing moves: for each cause, the words of a sweep with its exit code, of
the doctor and of the report. docs/operations.md has the same table for the person on call.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duesweep.core.errors import ExitCode, LedgerError
from duesweep.core.world import Clock
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.operations import look
from duesweep.sweep import settle
from support.diagnosis import diagnosed
from support.endpoint import Endpoint

DELAYED = '"Sales.Orders.Delayed"'
SWALLOW = "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
REFUSE = (
    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN RAISE EXCEPTION ''not on Sundays''; END'"
)
AFTER = "CREATE TRIGGER no AFTER {} ON {} FOR EACH {} EXECUTE FUNCTION refuse()"
KEEP = "CREATE TRIGGER keep BEFORE {} ON {} FOR EACH ROW EXECUTE FUNCTION swallow()"
WHOLE = ("ALL ON ALL TABLES IN SCHEMA public", "ALL ON ALL SEQUENCES IN SCHEMA public")
READ_ONLY = "-c default_transaction_read_only=on"
At = Callable[[Endpoint[Any]], AbstractContextManager[Endpoint[Any]]]


@dataclass(frozen=True)
class Cause:
    """`words` are in a sweep's output, which ends with `code`. `check` is the doctor's, with its
    severity and words; None: it finds nothing wrong. `report` has its own words.
    """

    at: At
    code: int
    words: str
    check: str | None = None
    severity: str = "fault"
    found: str = ""
    report: str = "found by the doctor"


def _sql(*statements: str) -> At:
    def at(endpoint: Endpoint[Any]) -> AbstractContextManager[Endpoint[Any]]:
        for statement in statements:
            endpoint.execute(statement)
        return nullcontext(endpoint)

    return at


def _as_role(*statements: str) -> At:
    """By a role that owns no table."""

    def at(endpoint: Endpoint[Any]) -> AbstractContextManager[Endpoint[Any]]:
        dsn = endpoint.server.role("sweeper", *WHOLE)
        for statement in statements:
            endpoint.execute(
                statement.replace("sweeper", f"{endpoint.server.admin.info.dbname}_sweeper")
            )
        return nullcontext(endpoint.having(store__dsn=dsn))

    return at


def _after_a_failure(endpoint: Endpoint[Any]) -> AbstractContextManager[Endpoint[Any]]:
    endpoint.execute('ALTER TABLE "Billing" RENAME TO away')
    assert endpoint.run("sweep").code == 3
    endpoint.execute('ALTER TABLE away RENAME TO "Billing"')
    return nullcontext(endpoint)


def _paused(endpoint: Endpoint[Any]) -> AbstractContextManager[Endpoint[Any]]:
    assert endpoint.run("pause", "*", "--reason", "INC-1").code == 0
    return nullcontext(endpoint)


def _ledger_elsewhere(endpoint: Endpoint[Any]) -> AbstractContextManager[Endpoint[Any]]:
    endpoint.execute('ALTER TABLE "Billing" RENAME TO away')
    assert endpoint.run("sweep").code == 3
    endpoint.execute('ALTER TABLE away RENAME TO "Billing"')
    endpoint.end_back_off()
    return nullcontext(endpoint.having(ledger__root=str(endpoint.folder / "other")))


@contextmanager
def _held_by_a_session(endpoint: Endpoint[Any], **settings: object) -> Iterator[Endpoint[Any]]:
    with psycopg.connect(endpoint.dsn) as connection:
        connection.execute(f"SELECT FROM {DELAYED} FOR UPDATE".encode())
        yield endpoint.having(**settings)


@contextmanager
def _locked_table(endpoint: Endpoint[Any]) -> Iterator[Endpoint[Any]]:
    with psycopg.connect(endpoint.dsn) as connection:
        connection.execute(f"LOCK TABLE {DELAYED}".encode())
        yield endpoint.having(timeouts__silence_seconds=6)


@contextmanager
def _prepared(endpoint: Endpoint[Any]) -> Iterator[Endpoint[Any]]:
    if endpoint.fetch("SHOW max_prepared_transactions")[0][0] == "0":
        pytest.skip("this server allows no prepared transactions")
    with psycopg.connect(endpoint.dsn) as connection:
        connection.execute(f"SELECT FROM {DELAYED} FOR UPDATE".encode())
        connection.execute(b"PREPARE TRANSACTION 'stuck'")
    yield endpoint
    endpoint.execute("ROLLBACK PREPARED 'stuck'")


@contextmanager
def _full_journal(endpoint: Endpoint[Any]) -> Iterator[Endpoint[Any]]:
    """A sweep's results wait for a ledger whose disk is full, and no more may wait."""
    with pytest.MonkeyPatch.context() as patch:
        no_space = Mock(side_effect=LedgerError("No space left on device", transient=True))
        patch.setattr(DeltaRsTables, "write", no_space)
        assert endpoint.run("sweep").code == 4
        endpoint.delay_many(3)
        patch.setattr(settle, "MOST_UNSETTLED_MESSAGES", 1)
        yield endpoint


@contextmanager
def _server_behind(endpoint: Endpoint[Any]) -> Iterator[Endpoint[Any]]:
    """By an hour: its Dues are an hour later by its clock."""
    endpoint.execute(f"UPDATE {DELAYED} SET due = due + interval '1 hour'")
    with pytest.MonkeyPatch.context() as patch:
        now = Clock.now
        patch.setattr(Clock, "now", lambda self: now(self) + timedelta(hours=1))
        yield endpoint


CAUSES = {
    "row-level security": Cause(
        _as_role(f"ALTER TABLE {DELAYED} ENABLE ROW LEVEL SECURITY"),
        *(2, "Row-level security hides or refuses rows", "row-security"),
    ),
    "publication without an identity": Cause(
        _sql(
            "CREATE PUBLICATION p FOR ALL TABLES", f"ALTER TABLE {DELAYED} REPLICA IDENTITY NOTHING"
        ),
        *(2, "REPLICA IDENTITY DEFAULT", "replica-identity"),
    ),
    "publication, and restored without its key": Cause(
        _sql(
            f"CREATE PUBLICATION p FOR TABLE {DELAYED}",
            f'ALTER TABLE {DELAYED} DROP CONSTRAINT "Sales.Orders.Delayed_pkey"',
        ),
        *(2, "ADD PRIMARY KEY (id)", "replica-identity"),
    ),
    "journal in a publication without an identity": Cause(
        _sql(
            "CREATE PUBLICATION p FOR ALL TABLES",
            "ALTER TABLE duesweep_sweeps REPLICA IDENTITY NOTHING",
        ),
        *(2, "duesweep_sweeps is in a publication", "replica-identity"),
    ),
    "journal without its key": Cause(
        _sql("ALTER TABLE duesweep_bindings DROP CONSTRAINT duesweep_bindings_pkey"),
        *(2, "ADD PRIMARY KEY (source)", "table-index"),
    ),
    "trigger that keeps rows": Cause(
        _sql(SWALLOW, KEEP.format("DELETE", DELAYED)),
        *(2, "keeps a message that is removed", "table-triggers"),
    ),
    "rule that keeps rows": Cause(
        _sql(f"CREATE RULE keep AS ON DELETE TO {DELAYED} DO INSTEAD NOTHING"),
        *(2, "rule keep drops it", "table-triggers"),
    ),
    "trigger that drops the journal's rows": Cause(
        _sql(SWALLOW, KEEP.format("INSERT", "duesweep_journal")),
        *(2, "does not take a row", "table-triggers"),
    ),
    "trigger that drops sweeps": Cause(
        _sql(SWALLOW, KEEP.format("INSERT", "duesweep_sweeps")),
        *(2, "did not take a row", "table-triggers", "warning"),
    ),
    "trigger that drops a queue's rows": Cause(
        _sql(SWALLOW, KEEP.format("INSERT", '"Billing"')),
        *(3, "look for a trigger or a rule", "table-triggers"),
    ),
    "trigger that refuses a removal": Cause(
        _sql(REFUSE, AFTER.format("DELETE", DELAYED, "ROW")),
        *(2, "not on Sundays (P0001). It has trigger no", "table-triggers"),
    ),
    "trigger that refuses a removal at its end": Cause(
        _sql(
            REFUSE,
            AFTER.replace("TRIGGER", "CONSTRAINT TRIGGER")
            .replace("FOR EACH", "INITIALLY DEFERRED FOR EACH")
            .format("DELETE", DELAYED, "ROW"),
        ),
        *(2, "not on Sundays (P0001). It has trigger no", "table-triggers"),
    ),
    "trigger that refuses the journal's rows": Cause(
        _sql(REFUSE, AFTER.format("INSERT", "duesweep_journal", "STATEMENT")),
        *(2, "not on Sundays (P0001). It has trigger no", "table-triggers"),
    ),
    "trigger that refuses a queue's rows": Cause(
        _sql(REFUSE, AFTER.format("INSERT", '"Billing"', "ROW")),
        *(3, "not on Sundays", "table-triggers"),
    ),
    "failed before": Cause(
        _after_a_failure,
        *(0, "3 messages failed before; the next attempt is at 20"),
        report="3 messages in back-off after a failure",
    ),
    # It warns of locks that are older than a minute: see below.
    "prepared transaction": Cause(
        _prepared,
        *(0, "prepared transaction 'stuck' of role postgres, whose transaction began at 20"),
        report="All is well",
    ),
    "rows that a session holds": Cause(
        _held_by_a_session,
        *(0, "locked: 3 messages: session "),
        report="All is well",
    ),
    "rows held for longer than the objective": Cause(
        lambda endpoint: _held_by_a_session(endpoint, slo__lateness_seconds=5),
        *(5, "a message is later than 5 s after its Due"),
        report="longer than slo.lateness_seconds (5 s)",
    ),
    "locked table": Cause(
        _locked_table,
        *(4, "another session holds a lock there", "sweep-start"),
        report="another session holds a lock there",
    ),
    "paused": Cause(_paused, *(0, "paused: *: INC-1"), report="paused: 3 due messages for Billing"),
    "breaker that is open": Cause(
        _as_role('REVOKE INSERT ON "Billing" FROM sweeper'),
        *(4, "Billing: triggered, 3 messages left", "table-rights"),
        report="the last sweep is incomplete: Queue table",
    ),
    "a journal that the ledger has not got, and that is full": Cause(
        _full_journal,
        *(4, "is full: it holds", "ledger", "warning", "It lacks 1 sweep or command"),
        report="found by the doctor",
    ),
    "ledger that cannot be written, before the first sweep": Cause(
        lambda endpoint: nullcontext(endpoint.having(ledger__root="/proc/tty/new")),
        *(2, "The ledger cannot be written under /proc/tty/new", "ledger"),
        report="There is no ledger at /proc/tty/new",
    ),
    "clock of the server that is behind": Cause(
        _server_behind,
        *(0, "The next message is due in 59 min", "clock-skew", "warning"),
        found="The server's clock is 3,",
    ),
    "missing queue": Cause(
        _sql('DROP TABLE "Billing"'),
        *(3, "no queue table", "table-exists"),
        report="3 messages in back-off after a failure",
    ),
    "misspelt endpoint": Cause(
        lambda endpoint: nullcontext(endpoint.named("Sales.Ordesr")),
        *(2, 'Did you mean "public"."Sales.Orders.Delayed"?', "table-exists"),
    ),
    "read-only server": Cause(
        lambda endpoint: nullcontext(
            endpoint.having(store__dsn=make_conninfo(endpoint.dsn, options=READ_ONLY))
        ),
        *(2, "is read-only", "server-writable"),
    ),
    "server away": Cause(
        lambda endpoint: nullcontext(endpoint.having(store__dsn=endpoint.server.unreached)),
        *(4, "Cannot connect", "server-reachable"),
    ),
    "ledger elsewhere": Cause(
        _ledger_elsewhere, *(2, "belongs to ledger", "ledger"), report="belongs to ledger"
    ),
    "missing right": Cause(
        _as_role(f"REVOKE DELETE ON {DELAYED} FROM sweeper"),
        *(2, "lacks DELETE", "table-rights"),
    ),
}


@pytest.mark.parametrize("cause", CAUSES.values(), ids=CAUSES.keys())
def test_cause_is_told_by_sweep_and_doctor(cause: Cause, endpoint: Endpoint[Any]) -> None:
    endpoint.set_up("Billing").delay_many(3)

    with cause.at(endpoint) as at:
        ran = at.run("sweep")
        found = diagnosed(at.config_file())
        page = at.run("report", "--out", str(at.folder / "report.html"))

    assert (ran.code, cause.words in ran.told) == (cause.code, True), ran
    assert cause.report in page.told, page
    assert len(endpoint.waiting()) == 3
    if cause.check is None:
        assert found.to_mend() == {}, found.text
    else:
        told = [one for one in found.all_of(cause.check) if one["severity"] == cause.severity]
        assert any(cause.found in one["found"] for one in told), found.text
        # A finding that stops a sweep is its refusal.
        if cause.code == ExitCode.CONFIGURATION and cause.severity == "fault":
            assert any(one["found"] in ran.told for one in told), (ran.told, told)


@pytest.mark.parametrize("hold", [_held_by_a_session, _prepared])
def test_rows_that_are_held_for_long_are_a_warning_of_doctor_and_report(
    hold: At, endpoint: Endpoint[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through three sweeps: a minute."""
    monkeypatch.setattr(look, "_LONG_LOCK", timedelta())
    endpoint.set_up("Billing").delay_many(3)

    with hold(endpoint):
        found = diagnosed(endpoint.config_file())
        page = endpoint.run("report", "--out", str(endpoint.folder / "report.html"))

    assert found.code == 3
    assert "3 due messages locked by " in found.of("store-notices")["found"]
    assert "End or commit" in found.of("store-notices")["advice"]
    assert "warning  3 due messages locked by " in page.out, page
    assert diagnosed(endpoint.config_file()).to_mend() == {}


def test_trigger_that_keeps_no_row_and_publications_with_identities_are_no_fault(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing").delay_many(3)
    endpoint.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RETURN CASE TG_OP WHEN ''DELETE'' THEN OLD ELSE NEW END; END'"
    )
    endpoint.execute(KEEP.format("DELETE", DELAYED).replace("swallow", "note"))
    endpoint.execute(KEEP.format("INSERT", '"Billing"').replace("swallow", "note"))
    audit = KEEP.format("INSERT", '"Sales.Orders"').replace("swallow", "note")
    endpoint.execute(audit.replace("BEFORE", "AFTER"))
    endpoint.execute("CREATE PUBLICATION p FOR ALL TABLES")
    endpoint.execute(f"ALTER TABLE {DELAYED} REPLICA IDENTITY FULL")

    assert diagnosed(endpoint.config_file()).to_mend() == {}
    assert endpoint.document("sweep")["dispatched"] == 3


def test_published_part_of_a_table_without_an_identity_is_named(endpoint: Endpoint[Any]) -> None:
    endpoint.set_up("Billing")
    endpoint.execute(f"DROP TABLE {DELAYED}")
    endpoint.execute(
        f"CREATE TABLE {DELAYED} (id uuid DEFAULT gen_random_uuid(), headers text NOT NULL,"
        " body bytea, due timestamptz NOT NULL) PARTITION BY RANGE (due)"
    )
    endpoint.execute(f"CREATE TABLE part PARTITION OF {DELAYED} DEFAULT")
    endpoint.execute(f"CREATE INDEX ON {DELAYED} (due)")
    endpoint.execute(f"CREATE PUBLICATION p FOR TABLE {DELAYED} WITH (publish_via_partition_root)")
    endpoint.delay()

    ran = endpoint.run("sweep")

    assert (ran.code, "public.part is in a publication" in ran.err) == (2, True), ran


def test_statement_that_the_server_refuses_for_good_is_told_with_its_hint(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing").delay(due_in_seconds=900)
    assert endpoint.run("sweep").code == 0
    # Sweeps change no row of this table.
    endpoint.execute("CREATE PUBLICATION p FOR TABLE duesweep_pauses WITH (publish = 'insert')")
    endpoint.execute("ALTER TABLE duesweep_pauses DROP CONSTRAINT duesweep_pauses_pkey")
    endpoint.execute("CREATE UNIQUE INDEX ON duesweep_pauses (source, pattern, reason)")

    ran = endpoint.run("pause", "Billing", "--reason", "x")

    assert (ran.code, "ON CONFLICT" in ran.err) == (2, True), ran


def test_trigger_that_takes_only_what_nservicebus_writes_is_no_fault(
    endpoint: Endpoint[Any],
) -> None:
    endpoint.set_up("Billing").delay()
    refuse = "IF NEW.headers NOT LIKE '%NServiceBus.%' THEN RAISE EXCEPTION 'no message'; END IF;"
    endpoint.server.add_trigger("BEFORE INSERT", '"Billing"', f"{refuse} RETURN NEW;")

    assert endpoint.run("doctor", "--no-spark").code == 0
    assert endpoint.document("sweep")["dispatched"] == 1
