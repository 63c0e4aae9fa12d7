"""The format numbers of journal and ledger: a newer one than this version knows is refused before
anything is dispatched or changed.
"""

from typing import Any

import pytest
from deltalake import DeltaTable

from support.diagnosis import diagnosed
from support.endpoint import ON_BOTH_SERVERS, Endpoint

_LEDGER = "duesweep format 1 (0.1.0 or newer)"
_JOURNAL = "duesweep format 2 (0.1.0 or newer)"
_NEWER = "duesweep format 3 (7.5.0 or newer)"
_REFUSED = (
    " has format 3, and this version of duesweep knows none above {known}. Use duesweep 7.5.0 or a "
    "newer one\n"
)

pytestmark = ON_BOTH_SERVERS


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
def swept(endpoint: Endpoint[Any]) -> Endpoint[Any]:
    """An endpoint after a sweep, with a message that is due again."""
    endpoint.set_up("Billing").delay()
    assert endpoint.run("sweep").code == 0
    endpoint.delay()
    return endpoint


def test_new_journals_and_ledgers_are_marked(swept: Endpoint[Any]) -> None:
    assert _mark(swept) == _JOURNAL
    assert _ledger_table(swept).metadata().configuration["duesweep.format"] == _LEDGER


@pytest.mark.parametrize("command", ["sweep", "audit", "setup"])
@pytest.mark.parametrize("mark", [None, _LEDGER])
def test_journal_of_the_first_format_is_completed(
    mark: str | None, command: str, swept: Endpoint[Any]
) -> None:
    _set_mark(swept, mark)
    swept.execute(f"DROP TABLE {swept.own_table('leases')}")

    assert swept.run(command).code == 0

    assert _mark(swept) == _JOURNAL
    assert (swept.run("sweep").code, swept.waiting()) == (0, [])


@pytest.mark.parametrize("command", ["list", "plan"])
def test_look_at_messages_leaves_a_journal_of_the_first_format_to_earlier_versions(
    command: str, swept: Endpoint[Any]
) -> None:
    _set_mark(swept, _LEDGER)
    swept.execute(f"DROP TABLE {swept.own_table('leases')}")

    assert swept.run(command).code == 0

    assert _mark(swept) == _LEDGER


_AGE_COLUMNS = {"journal_id", "settled_sweep", "settled_at", "place"}
_READING = [
    ["list"],
    ["plan"],
    ["show", "nothing"],
    ["paused"],
    ["audit"],
    ["errors", "list"],
]


def _drop_age(endpoint: Endpoint[Any], columns: set[str] = _AGE_COLUMNS) -> None:
    """Leave the table of bindings as a version did that had leases, and noted no age."""
    bindings = endpoint.own_table("bindings")
    for column in sorted(columns):
        endpoint.execute(f"ALTER TABLE {bindings} DROP COLUMN {column}")


def _age_columns(endpoint: Endpoint[Any]) -> set[str]:
    rows = endpoint.fetch(
        "SELECT column_name AS name FROM information_schema.columns"
        f" WHERE table_name = 'duesweep_bindings' AND table_schema = '{endpoint.schema}'"
    )
    return {str(row.name) for row in rows} & _AGE_COLUMNS


def _sweeper(endpoint: Endpoint[Any]) -> str:
    """The dsn of a role that may sweep, and that owns no table."""
    if endpoint.kind != "postgresql":
        pytest.skip("its roles are tested on PostgreSQL")
    rights = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    return str(endpoint.server.role("sweeper", rights))


@pytest.mark.parametrize("columns", [_AGE_COLUMNS, {"place"}], ids=["all", "place"])
@pytest.mark.parametrize("command", ["setup", "doctor", "sweep", "maintain"])
def test_columns_that_an_earlier_version_lacked_are_added_by_the_first_command(
    command: str, columns: set[str], swept: Endpoint[Any]
) -> None:
    _drop_age(swept, columns)

    done = swept.run(command, *(["--no-spark"] if command == "doctor" else []))

    assert done.code == 0, done
    assert _age_columns(swept) == _AGE_COLUMNS
    if command == "setup":
        assert "added the columns that the journal lacked" in done.told
    assert (swept.run("sweep").code, swept.waiting()) == (0, [])
    assert swept.run("audit").code == 0


@pytest.mark.parametrize("columns", [_AGE_COLUMNS, {"place"}], ids=["all", "place"])
@pytest.mark.parametrize("command", _READING, ids=" ".join)
def test_reading_needs_no_columns_that_an_earlier_version_lacked_and_adds_none(
    command: list[str], columns: set[str], swept: Endpoint[Any]
) -> None:
    before = swept.run(*command)
    _drop_age(swept, columns)

    after = swept.run(*command)

    assert after.code == before.code, after
    assert _age_columns(swept) == _AGE_COLUMNS - columns


def test_report_reads_a_journal_without_these_columns(swept: Endpoint[Any]) -> None:
    _drop_age(swept)

    done = swept.run("report", "--json", "--out", str(swept.folder / "report.html"))

    assert done.document["sources"][0]["problems"] == [], done


@pytest.mark.parametrize("command", _READING, ids=" ".join)
def test_role_that_owns_no_table_reads_them_without_these_columns(
    command: list[str], swept: Endpoint[Any]
) -> None:
    before, dsn = swept.run(*command), _sweeper(swept)
    _drop_age(swept)

    after = swept.run(*command, store__dsn=dsn)

    assert after.code == before.code, after


@pytest.mark.parametrize("command", ["setup", "doctor", "sweep", "maintain"])
def test_role_that_may_not_add_these_columns_is_told_who_does_and_to_drop_nothing(
    command: str, swept: Endpoint[Any]
) -> None:
    dsn = _sweeper(swept)
    _drop_age(swept)

    refused = swept.run(command, *(["--no-spark"] if command == "doctor" else []), store__dsn=dsn)

    assert (refused.code, len(swept.waiting())) == (3 if command == "doctor" else 2, 1)
    told = refused.out + refused.told
    assert "have their owner run `duesweep setup`" in told.replace("Have", "have"), refused
    assert "drop" not in told


def test_column_of_another_type_is_still_refused(swept: Endpoint[Any]) -> None:
    _drop_age(swept)
    swept.execute(f"ALTER TABLE {swept.own_table('bindings')} ADD place int")

    refused = [swept.run(command) for command in ("setup", "sweep")]

    assert [(ran.code, "place is int" in ran.told) for ran in refused] == [(2, True)] * 2


def test_role_that_may_not_complete_it_is_told_who_does(swept: Endpoint[Any]) -> None:
    if swept.kind != "postgresql":
        pytest.skip("its roles are tested on PostgreSQL")
    swept.execute(f"DROP TABLE {swept.own_table('leases')}")
    dsn = swept.server.role(
        "sweeper", "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public"
    )

    refused = swept.run("sweep", store__dsn=dsn)

    assert (refused.code, len(swept.waiting())) == (2, 1)
    assert "setup --print-sql" in refused.told


def test_journal_that_lacks_more_than_an_earlier_version_created_is_refused(
    swept: Endpoint[Any],
) -> None:
    for name in ("leases", "limits"):
        swept.execute(f"DROP TABLE {swept.own_table(name)}")

    refused = swept.run("sweep")

    assert (refused.code, len(swept.waiting())) == (2, 1)
    assert "Run the command `setup` once" in refused.told


@pytest.mark.parametrize("newer", ["journal", "ledger"])
def test_newer_format_is_refused_before_anything_is_dispatched_or_changed(
    newer: str, swept: Endpoint[Any]
) -> None:
    (key,) = swept.waiting()
    commands = [["sweep"], ["cancel", key, "--yes"]]
    if newer == "journal":
        _set_mark(swept, _NEWER)
        commands += [["maintain"], ["setup"]]
        what, known = f"The journal's table {swept.own_table('journal')}", 2
    else:
        table = _ledger_table(swept)
        table.alter.set_table_properties({"duesweep.format": _NEWER}, raise_if_not_exists=False)
        commands += [["errors", "list"], ["audit"]]
        what, known = f"The ledger's table at {swept.folder / 'ledger' / 'tombstones'}", 1

    for ran in [swept.run(*command) for command in commands]:
        assert (ran.code, ran.err) == (2, f"duesweep: {what}{_REFUSED.format(known=known)}")

    assert (swept.waiting(), len(swept.queue_rows("Billing"))) == ([key], 1)
    assert _mark(swept) == (_NEWER if newer == "journal" else _JOURNAL)


def test_script_of_setup_does_not_mark_a_newer_journal_as_an_older_one(
    swept: Endpoint[Any],
) -> None:
    _set_mark(swept, _NEWER)
    script = swept.run("setup", "--print-sql")

    for batch in script.out.split("\nGO\n"):
        swept.execute(batch)

    assert (script.code, _mark(swept)) == (0, _NEWER)


def test_doctor_names_the_version(endpoint: Endpoint[Any]) -> None:
    _set_mark(endpoint.set_up(), _NEWER)

    found = diagnosed(endpoint.config_file()).of("table-shape")

    assert (found["severity"], found["about"]) == ("fault", endpoint.own_table("journal"))
    assert found["advice"] == "Use duesweep 7.5.0 or a newer one"
