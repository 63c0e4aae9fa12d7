"""A sweep over the whole corpus of bad input, and over large bodies, among good messages."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from duesweep.core.errors import make_printable
from duesweep.core.headers import FORWARD_DESTINATION, remove_forward_destination, write_json
from duesweep.core.message import MESSAGE_ID
from duesweep.drivers.postgresql.session import PostgreSqlSession
from duesweep.sweep.spark import SparkEngine
from duesweep_testing.builders import DelayedRow, delayed_row
from duesweep_transport.messages import one_message_at_a_time
from support.bad_input import corpus
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

_GOOD = 50


def _is_storable(text: str) -> bool:
    """PostgreSQL's texts have no NUL and no half of a surrogate pair."""
    return "\0" not in text and text == text.encode("utf-8", "replace").decode()


def _bad_rows() -> list[DelayedRow]:
    headers = [one.text for one in corpus("headers_json") if one["ending"] == "refused"]
    addressed = [write_json({FORWARD_DESTINATION: one.text}) for one in _addresses()]
    addressed += [
        write_json({FORWARD_DESTINATION: "NotAQueue"}),
        write_json({MESSAGE_ID: "a\0b", FORWARD_DESTINATION: "Nowhere"}),
    ]
    bodies = [None, b"", b"\0", b"\xff" * 300_001]
    return [
        DelayedRow(headers=text, body=bodies[number % 4])
        for number, text in enumerate([*headers, *addressed])
        if _is_storable(text)
    ]


def _addresses() -> Iterator[dict[str, object]]:
    # As JSON, no transport can write the half of a pair.
    return (one for one in corpus("addresses") if "\ud800" not in one.text)


def test_bad_messages_fail_one_by_one_and_good_ones_arrive_beside_them(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "error")
    endpoint.execute('CREATE TABLE "NotAQueue" (id uuid, headers text)')
    unusual = [
        DelayedRow(headers=one.text, body=None if number % 2 else b"")
        for number, one in enumerate(corpus("headers_json"))
        if one["ending"] == "read" and _is_storable(one.text)
    ]
    good = [delayed_row() for _ in range(_GOOD)]
    bad = _bad_rows()
    endpoint.load([row for rows in (bad[::2], good, unusual, bad[1::2]) for row in rows])

    ran = endpoint.run("sweep", retry__max_attempts=1, retry__error_queue="error")

    assert ran.code == 3
    assert endpoint.waiting() == []
    arrived = Counter((row.headers, row.body) for row in endpoint.queue_rows("Billing"))
    assert arrived == Counter(
        (remove_forward_destination(row.headers), row.body) for row in good + unusual
    )
    errors = {row.message_key: row for row in ledger.rows("errors")}
    assert {key: (row.headers_text, row.body) for key, row in errors.items()} == {
        row.key: (row.headers, row.body) for row in bad
    }
    assert all(20 < len(row.error_text) < 600 for row in errors.values())
    assert all(row.stack and len(row.stack) < 21_000 for row in errors.values())
    assert len(endpoint.queue_rows("error")) == len(bad)
    assert ledger.count("tombstones") == len(good + unusual + bad)
    assert ran.out == "".join(map(_printable_line, ran.out.splitlines(keepends=True)))
    assert len(ran.out) < 20_000


def _printable_line(line: str) -> str:
    return make_printable(line.removesuffix("\n")) + "\n"


def test_bad_messages_that_stay_are_in_the_retries_with_their_reasons(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    endpoint.execute('CREATE UNIQUE INDEX ON "Billing" (headers)')
    twin = delayed_row()
    twins = endpoint.load([twin, DelayedRow(headers=twin.headers)])
    bad = endpoint.load(_bad_rows())
    endpoint.delay_many(_GOOD)

    summary = run_sweep(endpoint)

    assert (summary.dispatched, summary.outcome) == (_GOOD + 1, "failures")
    retries = {row.message_key: row for row in ledger.rows("retries")}
    assert summary.failed == len(retries) == len(bad) + 1
    assert endpoint.waiting() == sorted(retries)
    assert all(row.attempts == 1 and 20 < len(row.error_text) < 600 for row in retries.values())
    (refused,) = retries.keys() - {row.key for row in bad}
    assert refused in {row.key for row in twins}
    assert retries[refused].error_class == "duesweep.errors.RefusedMessageError"
    assert "23505" in retries[refused].error_text


# The first instant that PostgreSQL knows, and others at which something begins or ends.
_DUES = [
    "4714-11-24 00:00:00+00 BC",
    "4713-01-01 00:00:00+00 BC",
    "0001-12-31 23:59:59.999999+00 BC",
    "0001-01-01 00:00:00+00",
    "1752-12-31 23:59:59.997+00",
    "-infinity",
]
_NEVER_DUE = ["9999-12-31 23:59:59.997+00", "294276-12-31 23:59:59.999999+00", "infinity"]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_dues_at_the_ends_of_their_type_are_swept_in_any_zone(
    endpoint: Endpoint, ledger: LedgerReader, zone: str
) -> None:
    endpoint.set_up("Billing")
    swept = endpoint.load([delayed_row(due=due) for due in _DUES])
    kept = endpoint.load([delayed_row(due=due) for due in _NEVER_DUE])
    good = endpoint.delay_many(2, due_in_seconds=-86_400)

    summary = run_sweep(endpoint, store__writer_time_zone=zone)

    assert (summary.dispatched, summary.outcome) == (len(swept) + len(good), "done")
    assert endpoint.waiting() == sorted(row.key for row in kept)
    # Not through Python's times, which have no years before 1.
    table = DeltaTable(str(ledger.root / "tombstones")).to_pyarrow_table()
    assert table.column("due").null_count == table.column("lateness_ms").null_count == 1
    assert min(filter(None, table.column("due").cast("int64").to_pylist())) == -210866803200000000


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Tokyo"])
def test_next_due_is_told_at_the_ends_of_its_type(endpoint: Endpoint, zone: str) -> None:
    endpoint.set_up("Billing")
    context = endpoint.context(store__writer_time_zone=zone)

    for due in [*_DUES[:-1], *_NEVER_DUE[:-1]]:
        endpoint.execute(f"DELETE FROM {endpoint.delayed}")
        endpoint.load([delayed_row(due=due)])
        with one_message_at_a_time(context.store) as session, session.transaction():
            assert session.next_due() is not None, due
            assert (session.fetch_next_due() is None) == (due in _NEVER_DUE), due


@contextmanager
def _counted(statement: str) -> Iterator[list[str]]:
    """Notes each time that a statement runs."""
    ran: list[str] = []
    rows = PostgreSqlSession.rows

    def noting(self: PostgreSqlSession, name: str, /, **values: object) -> list[object]:
        if name == statement:
            ran.append(name)
        return rows(self, name, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgreSqlSession, "rows", noting)
        yield ran


def test_hundreds_of_destinations_of_which_half_are_missing_cost_no_query_a_message(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up()
    there = [f"Queue{number}" for number in range(200)]
    endpoint.execute(
        "DO $$ BEGIN FOR n IN 0..199 LOOP EXECUTE format("
        "'CREATE TABLE %I (LIKE \"Sales.Orders\" INCLUDING ALL)', 'Queue' || n);"
        " END LOOP; END $$"
    )
    endpoint.delay_many(4_000, [*there, *(f"Missing{number}" for number in range(200))])
    began = monotonic()

    # Each slice asks for itself.
    with _counted("describe_tables") as asked:
        summary = run_sweep(endpoint, sweep__slices=1)

    assert (summary.dispatched, summary.failed, summary.left) == (2_000, 2_000, 0)
    # Each missing one once, and a few tables of duesweep's own.
    assert 200 <= len(asked) < 230
    assert monotonic() - began < 60


_MB = 1_000_000
# Seen: about 100 MB for a worker with its imports, and under four times the largest body.
_BOUND_MB = 450


def test_body_of_60_mb_and_many_of_1_mb_stay_within_bounds(
    spark: SparkSession, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    huge = os.urandom(60 * _MB)
    endpoint.load([delayed_row(body=huge)])
    endpoint.load(delayed_row(body=os.urandom(_MB)) for _ in range(150))

    summary = run_sweep(endpoint, SparkEngine(spark))

    assert (summary.dispatched, summary.bytes) == (151, 210 * _MB)
    sizes = endpoint.fetch('SELECT octet_length(body) AS size FROM "Billing"')
    assert sorted({row.size for row in sizes}) == [_MB, 60 * _MB]
    (largest,) = (r.body for r in endpoint.queue_rows("Billing") if len(r.body or b"") > _MB)
    assert largest == huge
    peak = max(peaks_of_workers())
    print(f"peak of a Python worker: {peak} MB")
    assert peak < _BOUND_MB


def test_body_of_60_mb_ends_whole_in_errors(
    spark: SparkSession, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("error")
    huge = os.urandom(60 * _MB)
    endpoint.load([delayed_row("Nowhere", body=huge)])

    summary = run_sweep(
        endpoint, SparkEngine(spark), retry__max_attempts=1, retry__error_queue="error"
    )

    assert summary.exhausted == 1
    (error,) = ledger.rows("errors")
    assert bytes(error.body) == huge
    assert endpoint.queue_rows("error")[0].body == huge


def peaks_of_workers() -> list[int]:
    """The most memory that each of this process's Python workers has had, in MB."""
    peaks = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
            status = (folder / "status").read_text()
        except OSError:
            continue
        # Other tests, of another worker of pytest's, also have such processes.
        if b"pyspark.daemon" in command and "VmHWM" in status and _is_ours(status):
            peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
            peaks.append(int(peak.split()[1]) // 1_000)
    return peaks


def _is_ours(status: str) -> bool:
    """Whether a process descends from this one, by its /proc/<pid>/status."""
    while True:
        parent = next(line for line in status.splitlines() if line.startswith("PPid")).split()[1]
        if parent == str(os.getpid()):
            return True
        try:
            status = Path("/proc", parent, "status").read_text()
        except OSError:
            return False
