"""An MSMQ store without routes: its addresses have machines, which queue tables do not know."""

from pathlib import Path

import pytest

from duesweep.api.look import Look
from duesweep.checks.finding import Check, Severity
from duesweep.cli import sweep
from duesweep.cli.sweep import WORK_FOR_SPARK
from duesweep.config import load
from duesweep.core.errors import Problem
from duesweep.wiring.examining import examination
from support.commands import run

SETTINGS = [
    "store.kind=msmq",
    "store.dsn=Server=db.example;Database=nsb;Trusted_Connection=yes",
    "store.endpoint=Sales.Orders",
    "ledger.root=/ledger",
]
ROUTE = '[[route]]\ndestination = "*"\nconnection = "main"\n[queues.main]\nkind = "sqlserver"\n'


GIVEN = [part for setting in SETTINGS for part in ("--set", setting)]


def test_doctor_finds_a_fault_and_none_where_there_is_a_route() -> None:
    (finding,) = examination(load(None, SETTINGS)).routes

    assert (finding.check, finding.severity) == (Check.ROUTE, Severity.FAULT)
    assert finding.found == (
        "Without a [[route]], MSMQ's address Billing@HOST-2 is read as queue Billing in schema "
        "HOST-2 of the store's own server"
    )
    assert finding.advice == "Add a [[route]] that says which queue it is"
    Path("routed.toml").write_text(ROUTE)
    assert examination(load(Path("routed.toml"), SETTINGS)).routes == []


@pytest.mark.parametrize(("gate", "code", "said"), [([], 0, 2), (["--gate"], WORK_FOR_SPARK, 0)])
def test_every_sweep_says_so_in_one_sentence_and_the_gate_leaves_it_to_the_sweep(
    monkeypatch: pytest.MonkeyPatch, gate: list[str], code: int, said: int
) -> None:
    notices = [] if gate else [Problem("the store's own notice")]
    look = Look(has_work=bool(gate), needs_spark=bool(gate), notices=notices)
    monkeypatch.setattr(sweep, "look_at", lambda *_: look)

    ran = run("sweep", *gate, *GIVEN)

    lines = ran.err.splitlines()
    assert (ran.code, len(lines)) == (code, said)
    if lines:
        without = "duesweep: Without a [[route]], MSMQ's address Billing@HOST-2 is read"
        assert lines[0].startswith(without)
        assert lines[1] == "duesweep: the store's own notice"
