"""duesweep from Python: the same work as the commands', as values."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import duesweep
from duesweep import Duesweep, DuesweepError, ErrorFilter, MessageFilter, Moment, load_config
from support.endpoint import Endpoint

HOUR = 3_600
# The engine is chosen by whether a session of Spark is there.
pytestmark = pytest.mark.usefixtures("no_spark_session")


def _opened(endpoint: Endpoint, **settings: object) -> Duesweep:
    return Duesweep(load_config(endpoint.config_file(**settings)))


def test_sweep_returns_its_report_and_the_ledger_is_read_in_arrow(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    opened = _opened(endpoint)
    planned = opened.plan()

    report = opened.sweep()

    assert [(one.destination, one.eligible) for one in planned.destinations] == [("Billing", 1)]
    assert (planned.due, planned.eligible, planned.engine) == (1, 1, "in-process")
    assert report is not None
    assert (report.dispatched, report.failed, report.ledger_error) == (1, 0, None)
    assert opened.table("tombstones").column("destination").to_pylist() == ["Billing"]
    assert opened.sweep() is None


def test_listed_messages_are_rescheduled_and_cancelled(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing", "Shipping")
    first, second = (endpoint.delay(to, due_in_seconds=HOUR) for to in ("Billing", "Shipping"))
    opened = _opened(endpoint)

    listing = opened.list(MessageFilter(destination="Bill*"))
    moved = opened.reschedule(MessageFilter(keys=(first,)), by=timedelta(days=2))
    cancelled = opened.cancel(MessageFilter(keys=(second, "gone")), reason="a test")

    assert ([one.message.key for one in listing.messages], listing.total) == ([first], 1)
    assert moved.tally.changed == 1
    assert opened.list().counts[-1] == 1
    assert (cancelled.tally.changed, cancelled.tally.gone) == (1, 1)
    assert endpoint.waiting() == [first]
    changes = opened.table("changes").column("change").to_pylist()
    assert sorted(changes) == ["cancelled", "rescheduled"]


def test_error_is_replayed_once(endpoint: Endpoint) -> None:
    endpoint.set_up()
    key = endpoint.delay("Billing")
    # One try, to a queue that is not there.
    opened = _opened(endpoint, retry__max_attempts=1, retry__initial_seconds=1)
    report = opened.sweep()
    assert report is not None
    endpoint.create_queue("Billing")

    (error,) = opened.errors()
    replayed = opened.replay(ErrorFilter(ids=(key,)))

    assert (report.exhausted, error.id.key) == (1, key)
    assert (replayed.chosen, replayed.failed) == (1, 0)
    assert len(endpoint.queue_rows("Billing")) == 1
    assert opened.errors() == []
    again = opened.replay(ErrorFilter(ids=(key,)))
    assert (again.chosen, again.done_before, again.done) == (0, 1, None)


def test_no_filter_has_to_be_meant_and_many_messages_need_a_reason(endpoint: Endpoint) -> None:
    endpoint.set_up()
    endpoint.delay_many(2, due_in_seconds=HOUR)
    opened = _opened(endpoint)

    with pytest.raises(DuesweepError, match="all messages"):
        opened.cancel(MessageFilter(), reason="a test")
    with pytest.raises(DuesweepError, match="no reason"):
        opened.cancel(MessageFilter(), everything=True)
    with pytest.raises(DuesweepError, match="one of `to` and `by`"):
        opened.reschedule(MessageFilter(), to=Moment(), by=timedelta(), everything=True)
    with pytest.raises(DuesweepError, match="no table 'sweep'"):
        opened.table("sweep")
    with pytest.raises(DuesweepError, match="There is no table sweeps"):
        opened.table("sweeps")
    assert len(endpoint.waiting()) == 2


def test_overrides_win_over_the_file(endpoint: Endpoint) -> None:
    config = load_config(endpoint.config_file(sweep__batch_rows=7), {"sweep.batch_rows": 8})

    assert config.sweep.batch_rows == 8


def test_import_loads_nothing_and_unknown_names_are_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, duesweep; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(duesweep.__file__).parents[1],
    )

    assert {name for name in done.stdout.split() if name.startswith("duesweep.")} == set()
    assert {"Duesweep", "load_config"} <= set(dir(duesweep))
    with pytest.raises(AttributeError, match="no attribute 'Sweeper'"):
        duesweep.Sweeper  # noqa: B018 - as a user would
