"""A ledger that cannot be written: due messages go out, and the journal keeps the account."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from duesweep.core.errors import LedgerError
from duesweep.core.result import exit_code_of
from duesweep.sweep import settle
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine, SweepContext
from duesweep.sweep.spark import SparkEngine
from support.endpoint import Endpoint
from support.faults.small_disk import SmallDisk, small_disk
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep

_FULL = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture(params=["delta-rs", "spark"])
def context(request: pytest.FixtureRequest, endpoint: Endpoint, disk: SmallDisk) -> SweepContext:
    endpoint.set_up("Billing")
    endpoint.delay_many(5)
    root = str(disk.folder / "ledger")
    return endpoint.context(ledger__root=root, ledger__writer=request.param)


@pytest.fixture
def engine(request: pytest.FixtureRequest, context: SweepContext) -> Engine:
    if context.ledger_writer == "spark":
        return SparkEngine(request.getfixturevalue("spark"))
    return InProcessEngine()


def _assert_complete(endpoint: Endpoint, context: SweepContext, sent: int) -> None:
    ledger = LedgerReader(Path(context.ledger_root))
    tombstones = ledger.rows("tombstones")
    assert len(tombstones) == len({row.message_key for row in tombstones}) == sent
    assert sum(row.dispatched for row in ledger.rows("sweeps")) == sent
    assert len(endpoint.queue_rows("Billing")) == sent
    assert endpoint.fetch("SELECT FROM duesweep_journal") == []


def test_full_disk_does_not_stop_delivery_and_the_ledger_is_complete_once_it_is_freed(
    engine: Engine, endpoint: Endpoint, context: SweepContext, disk: SmallDisk
) -> None:
    run_sweep(context, engine)
    disk.fill()

    for count in (10, 3):
        endpoint.delay_many(count)
        report = run_sweep(context, engine)
        assert (report.dispatched, report.outcome) == (count, "done")
        assert _FULL in str(report.ledger_error)
        assert len(str(report.ledger_error).splitlines()) == 1
        assert exit_code_of(report) == 4
    unsettled = endpoint.fetch("SELECT sweep_id FROM duesweep_sweeps")
    with pytest.raises(LedgerError, match=_FULL):
        run_sweep(context, engine)
    # With nothing due, none is added.
    assert endpoint.fetch("SELECT sweep_id FROM duesweep_sweeps") == unsettled
    assert len(unsettled) == 2
    disk.free()
    endpoint.delay()
    report = run_sweep(context, engine)

    assert (report.ledger_error, exit_code_of(report)) == (None, 0)
    _assert_complete(endpoint, context, 5 + 10 + 3 + 1)


def test_first_sweep_on_a_full_disk_dispatches_nothing_without_a_ledger(
    engine: Engine, endpoint: Endpoint, context: SweepContext, disk: SmallDisk
) -> None:
    disk.fill()
    waiting = endpoint.waiting()

    with pytest.raises(LedgerError, match=_FULL) as caught:
        run_sweep(context, engine)

    assert exit_code_of(caught.value) == 4
    assert endpoint.waiting() == waiting
    assert endpoint.fetch("SELECT FROM duesweep_bindings") == []
    disk.free()
    assert run_sweep(context, engine).dispatched == 5
    _assert_complete(endpoint, context, 5)


@pytest.fixture(
    params=[
        ("MOST_UNSETTLED_MESSAGES", 10),
        ("MOST_UNSETTLED_BYTES", 10),
    ],
    ids=lambda param: param[0],
)
def _journal_of_ten(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle, *request.param)


@pytest.mark.usefixtures("_journal_of_ten")
def test_journal_that_holds_too_much_ends_delivery(
    engine: Engine, endpoint: Endpoint, context: SweepContext, disk: SmallDisk
) -> None:
    run_sweep(context, engine)
    disk.fill()
    endpoint.delay_many(10)
    run_sweep(context, engine)
    endpoint.delay()
    waiting = endpoint.waiting()

    with pytest.raises(LedgerError, match=f"{_FULL}.*Nothing more is dispatched") as caught:
        run_sweep(context, engine)

    assert exit_code_of(caught.value) == 4
    assert "holds 10 messages" in str(caught.value)
    assert endpoint.waiting() == waiting
    disk.free()
    assert run_sweep(context, engine).dispatched == 1
    _assert_complete(endpoint, context, 16)


@pytest.mark.parametrize("context", ["delta-rs"], indirect=True)
def test_full_disk_is_one_sentence_and_a_document(
    endpoint: Endpoint, context: SweepContext, disk: SmallDisk
) -> None:
    run_sweep(context)
    disk.fill()
    endpoint.delay_many(10)

    ran = endpoint.run("sweep", "--json", ledger__root=context.ledger_root)

    assert (ran.code, _FULL in ran.err, len(ran.err.splitlines())) == (4, True, 1)
    summary = ran.document
    assert (summary["dispatched"], summary["exit_code"]) == (10, 4)
    assert _FULL in summary["ledger_error"]
    assert summary["error"] == summary["ledger_error"]
    disk.free()
