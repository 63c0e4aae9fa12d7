"""A ledger or a database that was restored from an older copy, and two stores of one name."""

import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest

from duesweep.core.errors import ConfigError
from duesweep.core.world import NO_PATIENCE
from duesweep.ledger.ledger import Ledger
from duesweep.operations.watch import Ticker
from duesweep.sweep.stop import Stop
from support.endpoint import Endpoint
from support.sweeps import run_sweep
from support.trials.armed import dying
from support.waiting import until

_SETTINGS = {"retry__max_attempts": 1, "retry__initial_seconds": 0}
_REASON = ("--reason", "x")
_CHECKS = (
    ("audit",),
    ("sweep",),
    ("doctor", "--no-spark"),
    ("report", "--out", "{folder}/report.html"),
)


@pytest.fixture
def copied(endpoint: Endpoint) -> Path:
    """A copy of the ledger, before its newest sweeps exhausted a message."""
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint, **_SETTINGS)
    copy = shutil.copytree(endpoint.ledger.root, endpoint.folder / "copy")
    endpoint.delay_many(2, ["Billing", "Nowhere"])
    run_sweep(endpoint, **_SETTINGS)
    return copy


def _put_back(endpoint: Endpoint, copy: Path) -> None:
    shutil.rmtree(endpoint.ledger.root)
    shutil.copytree(copy, endpoint.ledger.root)


def _checked(endpoint: Endpoint, sentence: str) -> dict[str, int]:
    """The exit codes of the commands that have to see it; each says the sentence."""
    codes = {}
    for command in _CHECKS:
        ran = endpoint.run(*(part.format(folder=endpoint.folder) for part in command))
        assert sentence in " ".join(ran.told.split()), (command, ran.told)
        codes[command[0]] = ran.code
    return codes


def test_ledger_that_was_put_back_is_seen_until_an_operator_accepts_it(
    endpoint: Endpoint, copied: Path
) -> None:
    _put_back(endpoint, copied)
    endpoint.delay("Billing")

    codes = _checked(endpoint, "is an older copy: it lacks sweep or command")

    assert codes == {"audit": 3, "sweep": 2, "doctor": 3, "report": 0}
    assert len(endpoint.waiting()) == 1
    assert endpoint.run("setup", "--rebind").code == 0
    assert endpoint.run("sweep").code == 0
    assert endpoint.run("audit").code == 0


@pytest.mark.parametrize(
    "command",
    [
        ("errors", "replay", "--all", "--yes", *_REASON),
        ("errors", "discard", "--all", "--yes", *_REASON),
        ("cancel", "--all", "--yes", *_REASON),
        ("maintain",),
    ],
)
def test_no_command_acts_on_a_ledger_that_was_put_back(
    command: tuple[str, ...], endpoint: Endpoint, copied: Path
) -> None:
    endpoint.create_queue("Nowhere")
    before = shutil.copytree(endpoint.ledger.root, endpoint.folder / "before")
    assert endpoint.run("errors", "replay", "--all", "--yes", *_REASON).code == 0
    assert endpoint.run("sweep").code == 0
    endpoint.delay_many(2, due_in_seconds=3_600)
    _put_back(endpoint, before)

    ran = endpoint.run(*command)

    assert ran.code == 2
    assert "is an older copy" in ran.err
    assert (len(endpoint.queue_rows("Nowhere")), len(endpoint.waiting())) == (1, 2)
    assert copied.exists()


def test_database_that_was_put_back_is_seen_until_an_operator_accepts_it(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint, **_SETTINGS)
    bindings = endpoint.own_table("bindings")
    (before,) = endpoint.fetch(f"SELECT settled_sweep, settled_at FROM {bindings}")
    endpoint.delay("Billing")
    run_sweep(endpoint, **_SETTINGS)
    # As a backup from before the second sweep has it.
    endpoint.execute(
        f"UPDATE {bindings} SET settled_sweep = $1, settled_at = $2",
        before.settled_sweep,
        before.settled_at,
    )
    endpoint.delay("Billing")

    codes = _checked(endpoint, "the ledger has 1 later sweep or command, such as")

    assert codes == {"audit": 3, "sweep": 2, "doctor": 3, "report": 0}
    assert endpoint.run("setup", "--rebind").code == 0
    assert endpoint.run("sweep").code == 0
    assert endpoint.run("audit").code == 0


def test_watcher_delivers_nothing_of_a_database_that_was_put_back(endpoint: Endpoint) -> None:
    bindings = endpoint.own_table("bindings")
    settled = f"SELECT settled_sweep, settled_at FROM {bindings} WHERE settled_at IS NOT NULL"
    endpoint.set_up("Billing").delay("Billing")
    ticker = Ticker(endpoint.context(), Stop(), has_spark=False)
    ticker.tick()
    until(lambda: endpoint.fetch(settled))
    (before,) = endpoint.fetch(settled)
    endpoint.delay("Billing")
    ticker.tick()
    until(lambda: endpoint.fetch(settled) != [before])
    # The settler notes how far the journal is before it closes its session.
    until(lambda: endpoint.server.sessions() == 1)
    endpoint.execute(
        f"UPDATE {bindings} SET settled_sweep = $1, settled_at = $2",
        before.settled_sweep,
        before.settled_at,
    )
    endpoint.delay("Billing")

    with pytest.raises(ConfigError, match="the ledger has 1 later sweep or command"):
        ticker.tick()

    assert len(endpoint.waiting()) == 1
    ticker.close()


def test_second_store_of_a_name_is_refused_unless_it_took_the_place_of_the_first(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    # As if the first sweep was of a store on another server, with the same names.
    bindings = endpoint.own_table("bindings")
    source, ledger = endpoint.context().store.source, endpoint.context().open_ledger()
    ledger.keep_journal(source, uuid4(), NO_PATIENCE)
    endpoint.execute(f"DELETE FROM {bindings}")
    endpoint.delay("Billing")

    ran = endpoint.run("sweep")

    assert (ran.code, len(endpoint.waiting())) == (2, 1)
    assert "has the rows of another store, which is also named" in ran.err
    assert "set another store.name" in ran.err.lower()
    assert endpoint.fetch(f"SELECT FROM {bindings}") == []
    assert endpoint.run("setup", "--rebind").code == 0
    assert endpoint.run("sweep").code == 0


def test_journal_of_an_earlier_version_gets_what_it_lacks_by_its_first_command(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    bindings = endpoint.own_table("bindings")
    for column in ("journal_id", "settled_sweep", "settled_at"):
        endpoint.execute(f"ALTER TABLE {bindings} DROP COLUMN {column}")
    dsn = endpoint.server.role("guest", "ALL ON ALL TABLES IN SCHEMA public")

    refused = endpoint.run("sweep", store__dsn=dsn)
    done = endpoint.run("sweep")

    assert (refused.code, done.code) == (2, 0)
    assert "setup --print-sql" in refused.told
    (row,) = endpoint.fetch(f"SELECT settled_sweep, journal_id FROM {bindings}")
    assert None not in row


def test_rows_that_retention_removed_make_no_older_copy(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    bindings = endpoint.own_table("bindings")
    ledger = endpoint.context().open_ledger()
    source = endpoint.context().store.source
    (row,) = ledger.rows("sweeps", ["end"])
    ledger.keep_from(source, endpoint.due_in(3_600))
    ledger.tables.remove("sweeps", source, "end", endpoint.due_in(3_600))
    endpoint.execute(f"UPDATE {bindings} SET settled_sweep = gen_random_uuid()")

    endpoint.delay("Billing")

    assert row
    assert endpoint.run("sweep").code == 0


def test_journal_without_the_newest_column_keeps_how_far_the_ledger_was(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    bindings = endpoint.own_table("bindings")
    endpoint.execute(f"ALTER TABLE {bindings} DROP COLUMN place")
    endpoint.delay("Billing")
    assert endpoint.run("sweep").code == 0

    endpoint.delay("Billing")
    ran = endpoint.run("sweep")
    assert (ran.code, len(endpoint.waiting())) == (0, 0), ran.told


def test_what_an_earlier_version_did_not_note_makes_no_older_copy(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    bindings = endpoint.own_table("bindings")
    (noted,) = endpoint.fetch(f"SELECT settled_sweep, settled_at FROM {bindings}")
    endpoint.delay("Billing")
    run_sweep(endpoint)
    # That sweep was the earlier version's.
    endpoint.execute(f"ALTER TABLE {bindings} DROP COLUMN place")
    endpoint.execute(
        f"UPDATE {bindings} SET settled_sweep = $1, settled_at = $2",
        noted.settled_sweep,
        noted.settled_at,
    )

    endpoint.delay("Billing")
    with dying("before Journal.delete_settled"):
        run_sweep(endpoint)

    assert endpoint.run("sweep").code == 0


@pytest.mark.parametrize("other", ["sweep", "cancel"])
def test_work_of_another_process_during_the_look_makes_no_older_copy(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    run_sweep(endpoint)
    endpoint.delay("Billing")
    since, looks = Ledger.since, list[str]()

    def since_with_another(ledger: Ledger, source: str, moment: datetime) -> Iterable[str]:
        looks.append(source)
        if len(looks) == 1:
            key = endpoint.delay("Billing", due_in_seconds=3_600)
            # It writes the ledger, and is killed before it notes that in the journal.
            with dying("before Journal.delete_settled"):
                if other == "sweep":
                    run_sweep(endpoint)
                else:
                    endpoint.run("cancel", key)
        return since(ledger, source, moment)

    monkeypatch.setattr(Ledger, "since", since_with_another)

    ran = endpoint.run("sweep")

    assert (ran.code, ran.err) == (0, "")
    assert len(looks) > 1
    assert endpoint.run("audit").code == 0
