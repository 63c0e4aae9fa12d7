"""Health of `duesweep watch`, as Kubernetes asks for it, and what SIGHUP does."""

import http.client
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.waiting import until
from support.watcher import Watcher, watching

_TO_OTHER = """
queues.default.kind = "postgresql"
route = [{ destination = "Billing", connection = "default", queue = "Other" }]
"""


def _status(watcher: Watcher, path: str, method: str = "GET") -> int:
    port = watcher.events("listening")[0]["port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def _unanswered(endpoint: Endpoint) -> Iterator[None]:
    """Within the block, no statement on the delayed table is answered."""
    with psycopg.connect(endpoint.dsn) as other:
        other.execute(f"LOCK TABLE {endpoint.delayed} IN ACCESS EXCLUSIVE MODE")
        yield


def test_watcher_is_unhealthy_without_answers_of_its_store_and_lives_and_ends_all_the_same(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay()
    with watching(endpoint.config_file(), "--port", "0") as watcher:
        with _unanswered(endpoint):
            until(lambda: watcher.events("waiting"))
            assert (_status(watcher, "/health"), _status(watcher, "/live")) == (503, 200)
            waiting = watcher.health()[1]["sources"][0]["waiting"]
            assert [each["for"] for each in waiting] == ["store"]
            assert watcher.metrics()["waiting_seconds"] > 2
        until(lambda: _status(watcher, "/health", "HEAD") == 200)
        until(lambda: endpoint.queue_rows("Billing"))
        assert watcher.events("waited")
        with _unanswered(endpoint):
            until(lambda: _status(watcher, "/health", "HEAD") == 503)
            assert _status(watcher, "/live", "HEAD") == 200
            # It has nothing in hand, so it does not wait for the answer.
            assert watcher.end() == 0


def test_sighup_takes_over_what_may_change_and_keeps_the_settings_if_the_file_is_invalid(
    endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing", "Other")
    file = endpoint.config_file()
    elsewhere = str(endpoint.folder / "elsewhere")
    with watching(file) as watcher:
        endpoint.delay()
        until(lambda: len(endpoint.queue_rows("Billing")) == 1)
        with endpoint.config_file(ledger__root=elsewhere).open("a") as text:
            text.write(_TO_OTHER)
        watcher.process.send_signal(signal.SIGHUP)
        until(lambda: watcher.events("reloaded"))
        endpoint.delay()
        until(lambda: len(endpoint.queue_rows("Other")) == 1)
        until(lambda: ledger.count("tombstones") == 2)
        file.write_text("sweep.slizes = 1")
        watcher.process.send_signal(signal.SIGHUP)
        until(lambda: watcher.events("reload_failed"))
        endpoint.delay()
        until(lambda: len(endpoint.queue_rows("Other")) == 2)
        file.write_text("no TOML")
        watcher.process.send_signal(signal.SIGHUP)
        until(lambda: len(watcher.events("reload_failed")) == 2)
        endpoint.delay()
        until(lambda: len(endpoint.queue_rows("Other")) == 3)
        assert watcher.end() == 0

    (kept,) = watcher.events("reloaded")
    assert kept["not_changed"] == ["ledger.root"]
    assert "slizes" in watcher.events("reload_failed")[0]["error"]
    assert not (endpoint.folder / "elsewhere").exists()


def test_sighup_reloads_each_endpoint_of_a_fleet_and_names_those_that_are_new_or_gone(
    endpoint: Endpoint,
) -> None:
    endpoint.set_up("Billing", "Other")
    second = endpoint.named("Second").set_up()
    names = (endpoint.name, second.name)
    file = _fleet(endpoint, *names)
    with watching(file) as watcher:
        endpoint.delay()
        second.delay()
        until(lambda: len(endpoint.queue_rows("Billing")) == 2)
        _fleet(endpoint, endpoint.name, "Third", defaults=_TO_OTHER)
        watcher.process.send_signal(signal.SIGHUP)
        until(lambda: watcher.events("endpoints_not_changed"))
        endpoint.delay()
        second.delay()
        until(lambda: len(endpoint.queue_rows("Other")) == 1)
        # One that is gone from the file goes on with what it had.
        until(lambda: len(endpoint.queue_rows("Billing")) == 3)
        assert watcher.end() == 0

    assert len(watcher.events("reloaded")) == 1
    (ended,) = watcher.events("endpoints_not_changed")
    assert [len(ended[each]) for each in ("added", "removed")] == [1, 1]


def _fleet(endpoint: Endpoint, *names: str, defaults: str = "") -> Path:
    file = endpoint.folder / "fleet.toml"
    entries = [f'[[endpoint]]\nstore.endpoint = "{name}"' for name in names]
    shared = [
        "[defaults]",
        f'store.dsn = "{endpoint.dsn}"',
        f'store.schema = "{endpoint.schema}"',
        f'ledger.root = "{endpoint.folder / "ledger"}"',
        defaults,
    ]
    file.write_text("\n".join([*shared, *entries]))
    return file
