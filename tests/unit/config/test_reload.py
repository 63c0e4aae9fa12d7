"""Which settings of a watcher a changed file may change, and when it is not in force."""

from pathlib import Path

import pytest

from duesweep.config import Config, keep_fixed, load, settings_of
from duesweep.operations.opening import endpoints_of
from duesweep.operations.watch import Ticker, reload
from duesweep.sweep.stop import Stop
from support.config_files import MINIMAL, file_of


def _config(*overrides: str) -> Config:
    return load(file_of(f'{MINIMAL}[queues.default]\ndsn = "host=a"\n'), overrides)


def test_store_ledger_and_servers_stay_and_are_named() -> None:
    old = _config()
    different = ("store.schema=other", "store.endpoint=Other", "ledger.root=/other")
    new = _config(*different, "queues.default.dsn=host=b", "retry.max_attempts=2")

    kept, not_changed = keep_fixed(new, old)

    assert not_changed == ["ledger.root", "queues.default.dsn", "store.endpoint", "store.schema"]
    assert (kept.store, kept.ledger, kept.queues) == (old.store, old.ledger, old.queues)
    assert kept.retry.max_attempts == 2


def test_queues_stay_on_a_server_of_the_same_kind() -> None:
    old = _config()
    new = load(file_of(f'{MINIMAL}[queues.default]\nkind = "rabbitmq"\nurl = "amqp://b"\n'))

    kept, not_changed = keep_fixed(new, old)

    assert not_changed == ["queues.default.dsn", "queues.default.kind", "queues.default.url"]
    assert kept.queues == old.queues


def test_queues_of_the_stores_own_server_stay_there_and_others_do_not_come_there() -> None:
    on_the_stores, elsewhere = load(file_of()), _config()

    kept, not_changed = keep_fixed(elsewhere, on_the_stores)

    assert not_changed == ["queues.default.dsn"]
    assert kept.queues["default"].dsn is None
    kept, not_changed = keep_fixed(on_the_stores, elsewhere)
    assert not_changed == ["queues.default.dsn"]
    assert kept.queues == elsewhere.queues


def test_all_else_is_taken_over() -> None:
    new = _config("ledger.keep_days=9", "retry.max_attempts=2")

    assert keep_fixed(new, _config()) == (new, [])


def test_queues_that_are_new_are_taken_over() -> None:
    routed = '[queues.other]\ndsn = "host=b"\n[[route]]\ndestination = "*"\nconnection = "other"\n'
    new = load(file_of(f"{MINIMAL}{routed}"))

    assert keep_fixed(new, load(file_of())) == (new, [])


_SQL_SERVER = """
[store]
kind = "sqlserver"
dsn = "Server=a;Database=sales"
endpoint = "Sales.Orders"
[ledger]
root = "/ledger"
[queues.other]
dsn = "Server=b;Database=sales"
[[route]]
destination = "*"
connection = "other"
"""


def test_file_that_does_not_fit_what_stays_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = file_of(MINIMAL)
    endpoints, _ = endpoints_of(settings_of([file]), ())
    (before,) = endpoints
    ticker = Ticker(before.context, Stop(), has_spark=False)
    # The new queues have no kind of their own, and the store's stays.
    file_of(_SQL_SERVER)

    assert reload(endpoints, [ticker], lambda: settings_of([file]), ()) is False
    assert endpoints == [before]
