"""The format numbers of journal and ledger: a newer one than this version knows is refused before
anything is dispatched or changed.
"""

from typing import Any

import pytest
from deltalake import DeltaTable

from duesweep.cli.app import main
from support.diagnosis import diagnosed
from support.endpoint import ON_BOTH_SERVERS, Endpoint

_KNOWN = "duesweep format 1 (0.1.0 or newer)"
_NEWER = "duesweep format 2 (7.5.0 or newer)"
_REFUSED = (
    " has format 2, and this version of duesweep knows none above 1; use duesweep 7.5.0 or a newer "
    "one\n"
)

pytestmark = ON_BOTH_SERVERS


def _run(endpoint: Endpoint[Any], *arguments: str) -> int:
    return main([*arguments, "--config", str(endpoint.folder / "duesweep.toml")])


def _mark(endpoint: Endpoint[Any]) -> str | None:
    """How the journal is marked."""
    table = endpoint.own_table("journal")
    if endpoint.kind == "postgresql":
        (row,) = endpoint.fetch("SELECT obj_description($1::regclass, 'pg_class') AS mark", table)
        return str(row.mark) if row.mark is not None else None
    rows = endpoint.fetch(
        "SELECT CONVERT(nvarchar(200), value) AS mark FROM sys.extended_properties"
        " WHERE class = 1 AND major_id = OBJECT_ID(?) AND name = 'duesweep.format'",
        table,
    )
    return str(rows[0].mark) if rows else None


def _set_mark(endpoint: Endpoint[Any], mark: str | None) -> None:
    """Mark the journal, as a newer version would, or as older ones left it."""
    if endpoint.kind == "postgresql":
        value = "NULL" if mark is None else f"'{mark}'"
        endpoint.execute(f"COMMENT ON TABLE {endpoint.own_table('journal')} IS {value}")
        return
    level = (
        f"@level0type = 'SCHEMA', @level0name = '{endpoint.schema}',"
        " @level1type = 'TABLE', @level1name = 'duesweep_journal'"
    )
    endpoint.execute(f"EXEC sys.sp_dropextendedproperty @name = 'duesweep.format', {level}")
    if mark is not None:
        endpoint.execute(
            f"EXEC sys.sp_addextendedproperty @name = 'duesweep.format', @value = '{mark}', {level}"
        )


def _ledger_table(endpoint: Endpoint[Any]) -> DeltaTable:
    return DeltaTable(endpoint.folder / "ledger" / "tombstones")


@pytest.fixture
def swept(endpoint: Endpoint[Any], capsys: pytest.CaptureFixture[str]) -> Endpoint[Any]:
    """An endpoint after a sweep, with a message that is due again."""
    endpoint.set_up("Billing").delay()
    assert _run(endpoint, "sweep") == 0
    endpoint.delay()
    capsys.readouterr()
    return endpoint


def test_new_journals_and_ledgers_are_marked(swept: Endpoint[Any]) -> None:
    assert _mark(swept) == _KNOWN
    assert _ledger_table(swept).metadata().configuration["duesweep.format"] == _KNOWN


def test_without_a_mark_they_have_the_first_format(swept: Endpoint[Any]) -> None:
    _set_mark(swept, None)

    assert (_run(swept, "sweep"), swept.waiting()) == (0, [])
    assert _run(swept, "setup") == 0


def test_newer_journal_is_refused_and_stays_as_it_is(
    swept: Endpoint[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _set_mark(swept, _NEWER)
    (key,) = swept.waiting()

    for command in (["sweep"], ["cancel", key, "--yes"], ["maintain"], ["setup"]):
        assert _run(swept, *command) == 2
        table = swept.own_table("journal")
        assert capsys.readouterr().err == f"duesweep: The journal's table {table}{_REFUSED}"

    assert (swept.waiting(), len(swept.queue_rows("Billing"))) == ([key], 1)
    assert _mark(swept) == _NEWER


def test_script_of_setup_does_not_mark_a_newer_journal_as_an_older_one(
    swept: Endpoint[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _set_mark(swept, _NEWER)
    assert _run(swept, "setup", "--print-sql") == 0

    for batch in capsys.readouterr().out.split("\nGO\n"):
        swept.execute(batch)

    assert _mark(swept) == _NEWER


def test_newer_ledger_is_refused_before_anything_is_dispatched(
    swept: Endpoint[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    table = _ledger_table(swept)
    table.alter.set_table_properties({"duesweep.format": _NEWER}, raise_if_not_exists=False)
    (key,) = swept.waiting()

    for command in (["sweep"], ["cancel", key, "--yes"], ["errors", "list"], ["audit"]):
        assert _run(swept, *command) == 2
        place = swept.folder / "ledger" / "tombstones"
        assert capsys.readouterr().err == f"duesweep: The ledger's table at {place}{_REFUSED}"

    assert (swept.waiting(), len(swept.queue_rows("Billing"))) == ([key], 1)


def test_doctor_names_the_version(
    endpoint: Endpoint[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    _set_mark(endpoint.set_up(), _NEWER)

    found = diagnosed(capsys, endpoint.config_file()).of("table-shape")

    assert (found["severity"], found["about"]) == ("fault", endpoint.own_table("journal"))
    assert found["advice"] == "Use duesweep 7.5.0 or a newer one"
