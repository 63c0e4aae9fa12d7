"""A view in the place of a table: its owner's functions would run with the rights of its reader. So
no command reads it.
"""

import pytest

from support.diagnosis import diagnosed
from support.endpoint import Endpoint
from support.postgresql_server import PostgreSqlServer
from support.transport import message, transport_of

_VIEW = """
ALTER TABLE "{0}" RENAME TO hidden;
CREATE SEQUENCE runs;
CREATE FUNCTION hijack(text) RETURNS text LANGUAGE plpgsql AS
$$BEGIN PERFORM nextval('public.runs'); RETURN $1; END$$;
CREATE VIEW "{0}" AS SELECT {1}, public.hijack(headers) AS headers FROM hidden;
"""
_LOOKS = (
    *("list", "list --failing", "list --type x", "plan", "show --message-id x", "show {key}"),
    *("cancel --all --dry-run", "reschedule --all --to now --dry-run", "audit", "paused", "sweep"),
)
_OF_ERRORS = ("errors list", "errors show x", "errors replay --all --dry-run")
_OF_QUEUES = (
    *("peek Billing", "receive Billing", "purge Billing --yes", "purge-expired Billing"),
    "send Billing --body x",
)


def _has_run(endpoint: Endpoint[PostgreSqlServer]) -> bool:
    """Whether the view's function has run: a sequence remembers it beyond a roll-back."""
    return bool(endpoint.fetch("SELECT is_called FROM runs")[0].is_called)


def test_view_in_the_place_of_the_delayed_table_is_not_read(
    endpoint: Endpoint[PostgreSqlServer],
) -> None:
    (key,) = endpoint.set_up("Billing").delay_many(1)
    endpoint.execute(_VIEW.format("Sales.Orders.Delayed", "id, body, due"))

    for look in _LOOKS:
        ran = endpoint.run(*look.format(key=key).split())
        assert (ran.code, "it is a view" in ran.err) == (2, True), (look, ran)
    report = endpoint.run("report", "--out", str(endpoint.folder / "page.html"))
    assert "it is a view" in report.out
    assert diagnosed(endpoint.config_file()).code == 3
    assert not _has_run(endpoint)


def test_view_in_the_place_of_a_table_of_the_journal_is_not_read(
    endpoint: Endpoint[PostgreSqlServer],
) -> None:
    (key,) = endpoint.set_up("Billing").delay_many(1)
    assert endpoint.run("sweep").code == 0
    endpoint.execute(
        _VIEW.replace("headers", "source").format(
            "duesweep_bindings",
            "delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place",
        )
    )

    for look in (*_LOOKS, *_OF_ERRORS):
        ran = endpoint.run(*look.format(key=key).split())
        assert (ran.code, "it is a view" in ran.err) == (2, True), (look, ran)
    assert "it is a view" in endpoint.run("report", "--out", "-").out
    assert diagnosed(endpoint.config_file()).code == 3
    assert not _has_run(endpoint)


@pytest.mark.parametrize("command", _OF_QUEUES)
def test_view_in_the_place_of_a_queue_is_neither_read_nor_filled(
    command: str, endpoint: Endpoint[PostgreSqlServer]
) -> None:
    endpoint.set_up("Billing")
    with transport_of(endpoint).connect() as session:
        session.queue("Billing").send(message())
    endpoint.execute(_VIEW.format("Billing", "id, expires, body, seq"))

    ran = endpoint.run("queue", *command.split())

    assert (ran.code, "it is a view" in ran.err, _has_run(endpoint)) == (2, True, False), ran
