"""The kit on the server of the tests, from its start to its file."""

import os
import re
from pathlib import Path

import pytest

from support.commands import ROOT, run_program

VARIABLE = "DUESWEEP_TEST_SQLSERVER"


@pytest.mark.long
@pytest.mark.sqlserver
def test_kit_asks_each_fact_and_writes_one_file(tmp_path: Path) -> None:
    if not os.environ.get(VARIABLE):
        pytest.skip(f"{VARIABLE} names no SQL Server (docs/testing.md)")
    from proof.sqlserver.facts import read_facts  # noqa: PLC0415 - loads ODBC

    file = tmp_path / "evidence.md"
    arguments = ["--parts", "facts", "plans", "--rows", "1000", "--ticks", "2", "--file", str(file)]
    ran = run_program(ROOT / "scripts" / "prove", "sqlserver", *arguments)

    text = file.read_text("utf-8")
    # A stand-in answers some of them otherwise.
    assert ran.code in {0, 1}, ran.told
    assert "0 parts broke off" in text
    assert re.search(r"^\| server \| \S+", text, re.MULTILINE)
    assert [fact.question for fact in read_facts() if f"| {fact.question} |" not in text] == []
    assert "Exit codes of 3 sweeps over 1,000 messages" in text
