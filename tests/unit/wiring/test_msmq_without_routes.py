"""An MSMQ store without routes: its addresses have machines, which queue tables do not know."""

from pathlib import Path

import pytest

from duesweep.api.look import Look
from duesweep.checks.finding import Check, Severity
from duesweep.cli import sweep
from duesweep.cli.app import main
from duesweep.config import load
from duesweep.errors import Problem
from duesweep.wiring.examining import examination

SETTINGS = [
    "store.kind=msmq",
    "store.dsn=Server=db.example;Database=nsb;Trusted_Connection=yes",
    "store.endpoint=Sales.Orders",
    "ledger.root=/ledger",
]
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n[queues.main]\nkind = "sqlserver"\n'


def _given() -> list[str]:
    return [part for setting in SETTINGS for part in ("--set", setting)]


def test_doctor_finds_a_fault() -> None:
    (finding,) = examination(load(None, SETTINGS)).routes

    assert (finding.check, finding.severity) == (Check.ROUTE, Severity.FAULT)
    assert finding.found == (
        "Without a [[route]], MSMQ's address Billing@HOST-2 is read as queue Billing in schema "
        "HOST-2 of the store's own server"
    )
    assert finding.advice == "Add a [[route]] that says which queue it is"


def test_doctor_finds_none_where_there_is_a_route() -> None:
    Path("routed.toml").write_text(ROUTE)

    assert examination(load(Path("routed.toml"), SETTINGS)).routes == []


def test_every_sweep_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sweep,
        "look_at",
        lambda *_: Look(
            has_work=False, needs_spark=False, notices=[Problem("the store's own notice")]
        ),
    )

    assert main(["sweep", *_given()]) == 0

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("duesweep: Without a [[route]], MSMQ's address Billing@HOST-2 is read")
    assert second == "duesweep: the store's own notice"


def test_gate_leaves_the_sentence_to_the_sweep_that_follows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sweep, "look_at", lambda *_: Look(has_work=True, needs_spark=True, notices=[])
    )

    assert main(["sweep", "--gate", *_given()]) == sweep.WORK_FOR_SPARK

    assert capsys.readouterr().err == ""


def test_nothing_is_sent_later_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "send", "Billing", "--delay", "1s", *_given()]) == 2

    assert "the store is of kind msmq; send it without a delay" in capsys.readouterr().err
