"""First sweeps at once: the journal belongs to one ledger, and everything is in it."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from duesweep.core.account import SweepReport
from duesweep.core.errors import ConfigError
from duesweep.core.result import exit_code_of
from duesweep.ledger.ledger import Ledger
from duesweep.stores.binding import Bound, SourceBinding
from duesweep.sweep.job import Engine
from support.endpoint import Endpoint
from support.ledger_reader import LedgerReader
from support.sweeps import run_sweep


def _part_class(endpoint: Endpoint, part: str) -> type:
    with endpoint.context().store.open_driver() as session:
        return type(getattr(session, part))


@contextmanager
def _seeing_no_binding_at_once(kind: type, count: int) -> Iterator[None]:
    """Each of `count` threads has seen that the journal is unbound before any of them continues."""
    barrier, read = threading.Barrier(count), kind.read
    has_seen = threading.local()

    def seen_by_all(binding: SourceBinding) -> Bound:
        found = read(binding)
        if not getattr(has_seen, "it", False):
            has_seen.it = True
            assert found.ledger is None
            barrier.wait(timeout=120)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "read", seen_by_all)
        yield


def _sweep_at_once(
    engine: Engine | None, endpoint: Endpoint, roots: Sequence[Path]
) -> list[SweepReport | ConfigError]:
    context = endpoint.context()

    def one(root: Path) -> SweepReport | ConfigError:
        try:
            return run_sweep(replace(context, ledger_root=str(root)), engine)
        except ConfigError as error:
            return error

    kind = _part_class(endpoint, "binding")
    with _seeing_no_binding_at_once(kind, len(roots)), ThreadPoolExecutor(len(roots)) as pool:
        return list(pool.map(one, roots))


@pytest.mark.parametrize("count", [2, 4])
def test_of_first_sweeps_with_a_root_each_one_binds_and_the_others_refuse(
    count: int, engine: Engine, endpoint: Endpoint
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(20)
    roots = [endpoint.folder / f"ledger{number}" for number in range(count)]

    ended = _sweep_at_once(engine, endpoint, roots)

    (winner,) = [n for n, one in enumerate(ended) if isinstance(one, SweepReport)]
    refused = [one for one in ended if isinstance(one, ConfigError)]
    assert len(refused) == count - 1
    assert all("setup --rebind" in str(one) and exit_code_of(one) == 2 for one in refused)
    assert [root.exists() for root in roots] == [n == winner for n in range(count)]
    tombstones = LedgerReader(roots[winner]).rows("tombstones")
    assert sorted(row.message_key for row in tombstones) == sorted(keys)
    assert len(endpoint.queue_rows("Billing")) == 20


@pytest.mark.parametrize("count", [2, 4])
def test_first_sweeps_with_one_root_all_bind_to_its_ledger(
    count: int, engine: Engine, endpoint: Endpoint, ledger: LedgerReader
) -> None:
    endpoint.set_up("Billing")
    keys = endpoint.delay_many(20)

    ended = _sweep_at_once(engine, endpoint, [ledger.root] * count)

    assert not [one for one in ended if isinstance(one, ConfigError)]
    assert sum(one.dispatched for one in ended) == 20
    assert sorted(row.message_key for row in ledger.rows("tombstones")) == sorted(keys)


def test_who_loses_the_race_without_the_lock_reads_back_who_won(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As after a process that was frozen, and lost its lease.
    endpoint.set_up("Billing")
    created, create = threading.Barrier(2), Ledger.create

    def create_together(*arguments: object) -> UUID:
        ledger_id = create(*arguments)
        created.wait(timeout=120)
        return ledger_id

    monkeypatch.setattr(Ledger, "create", create_together)
    monkeypatch.setattr(_part_class(endpoint, "journal"), "settling", lambda _: nullcontext(None))

    ended = _sweep_at_once(None, endpoint, [endpoint.folder / name for name in ("one", "two")])

    (error,) = [one for one in ended if isinstance(one, ConfigError)]
    assert "is new, empty and not in use" in str(error)
