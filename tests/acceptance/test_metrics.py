"""What `duesweep sweep` tells monitoring: its metrics, and by exit code 5 that it was late."""

from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duesweep.core.errors import LedgerError
from duesweep.ledger.delta_rs import DeltaRsTables
from duesweep.report.metrics import figures_in
from support.commands import Ran, run
from support.endpoint import Endpoint

UNREACHED = "postgresql://postgres@127.0.0.1:1/postgres"


def _sweep(endpoint: Endpoint, **settings: object) -> tuple[dict[str, float], Ran]:
    """Sweep with a metrics file; its content, without the names' prefix."""
    file = endpoint.folder / "sales.prom"
    ran = endpoint.run("sweep", metrics__textfile=str(file), **settings)
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    samples = {s.name.removeprefix("duesweep_"): s.value for f in families for s in f.samples}
    assert samples["run_exit_code"] == ran.code
    return samples, ran


def test_runs_with_and_without_work_and_with_failures_are_told(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(3, ["Billing"])

    done, _ = _sweep(endpoint)
    assert (done["run_exit_code"], done["dispatched_messages_total"]) == (0, 3)
    assert (done["due_messages"], done["oldest_due_age_seconds"]) == (0, 0)
    assert done["lateness_max_seconds"] > 0
    assert done["last_success_timestamp_seconds"] == done["last_run_timestamp_seconds"]

    endpoint.delay("Nowhere")
    failed, _ = _sweep(endpoint)
    assert (failed["run_exit_code"], failed["failed_messages_total"]) == (3, 1)
    # It waits for its next attempt, so the next sweep would not take it, but it is due.
    assert failed["due_messages"] == 0
    assert failed["oldest_due_age_seconds"] > 0
    assert failed["last_success_timestamp_seconds"] == done["last_run_timestamp_seconds"]

    idle, _ = _sweep(endpoint)
    assert (idle["run_exit_code"], idle["runs_total"]) == (0, 3)
    assert (idle["dispatched_messages_total"], idle["failed_messages_total"]) == (3, 1)
    assert "lateness_max_seconds" not in idle
    assert idle["last_success_timestamp_seconds"] > failed["last_success_timestamp_seconds"]


def test_store_out_of_reach_is_told(endpoint: Endpoint) -> None:
    told, ran = _sweep(endpoint, store__dsn=UNREACHED, store__name="sales")

    assert (ran.code, len(ran.err.splitlines())) == (4, 1)
    assert not {"due_messages", "last_success_timestamp_seconds"} & told.keys()


def test_gateway_that_is_down_is_one_sentence_and_changes_nothing(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay("Billing")

    ran = endpoint.run("sweep", metrics__pushgateway="http://sweeper:secret@127.0.0.1:1")

    assert (ran.code, endpoint.waiting()) == (0, [])
    assert ran.err.startswith("duesweep: The Pushgateway at http://127.0.0.1:1 did not get")
    assert ran.err.count("\n") == 1


def test_fleet_has_one_file_and_a_store_out_of_reach_tells_no_success(endpoint: Endpoint) -> None:
    endpoint.named("Sales").set_up("Mails").delay_many(3, ["Mails"])
    file = endpoint.folder / "fleet.prom"
    fleet = endpoint.fleet_file(
        'store = {name = "good", endpoint = "Sales"}',
        f'store = {{name = "down", endpoint = "Down", dsn = "{UNREACHED}"}}',
        metrics__textfile=str(file),
        slo__lateness_seconds=0.001,
    )

    assert run("sweep", "--config", str(fleet)).code == 4

    found = {
        source.partition("/")[0]: {sample.metric: value for sample, value in figures.items()}
        for source, figures in figures_in(file.read_text(encoding="utf-8")).items()
    }
    assert {source: f["duesweep_run_exit_code"] for source, f in found.items()} == {
        "good": 5,
        "down": 4,
    }
    assert all(f["duesweep_run_duration_seconds"] > 0 for f in found.values())
    assert found["good"]["duesweep_dispatched_messages_total"] == 3
    assert all("duesweep_last_success_timestamp_seconds" not in f for f in found.values())


SAID = "the objective slo.lateness_seconds"


@pytest.fixture
def late(endpoint: Endpoint) -> Endpoint:
    """A message for Billing is a minute late."""
    endpoint.set_up("Billing").delay("Billing", due_in_seconds=-60)
    return endpoint.having(slo__lateness_seconds=50)


def test_message_that_is_later_than_the_objective(late: Endpoint) -> None:
    ran = late.run("sweep", "--json")

    assert (ran.code, SAID in ran.err) == (5, True)
    told = ran.document
    assert (told["outcome"], told["exit_code"], told["error"]) == ("done", 5, None)


def test_message_that_is_less_late_than_the_objective(late: Endpoint) -> None:
    ran = late.run("sweep", slo__lateness_seconds=3_600)

    assert (ran.code, SAID in ran.err) == (0, False)


def test_message_that_is_late_because_it_failed_before(late: Endpoint) -> None:
    billing = late.table("Billing")
    late.execute(f"ALTER TABLE {billing} RENAME TO away")
    assert late.run("sweep").code == 3
    late.execute(f"ALTER TABLE away RENAME TO {billing.rpartition('.')[2]}")
    late.end_back_off()

    ran = late.run("sweep")

    assert (ran.code, SAID in ran.err) == (0, False)


def test_failure_is_told_before_lateness(late: Endpoint) -> None:
    late.delay("Nowhere")

    ran = late.run("sweep")

    assert (ran.code, SAID in ran.err) == (3, True)


@pytest.mark.parametrize("is_written", [True, False], ids=["ledger", "no ledger"])
def test_outcomes_are_counted_by_destination(endpoint: Endpoint, *, is_written: bool) -> None:
    """Also if the ledger cannot be written: the journal has them."""
    endpoint.set_up("Billing", "Shipping").delay_many(5, ["Billing", "Shipping"])
    endpoint.delay("Nowhere")
    endpoint.delay(None)
    file = endpoint.folder / "sales.prom"
    settings = {"metrics__textfile": str(file), "retry__max_attempts": 2}
    with pytest.MonkeyPatch.context() as patch:
        if not is_written:
            no_space = Mock(side_effect=LedgerError("No space left on device", transient=True))
            patch.setattr(DeltaRsTables, "write", no_space)
        assert endpoint.run("sweep", **settings).code == (3 if is_written else 4)
    endpoint.end_back_off()
    assert endpoint.run("sweep", **settings).code == 3

    (figures,) = figures_in(file.read_text(encoding="utf-8")).values()

    found = {
        (of, name.split("_")[2]): value
        for (name, of), value in figures.items()
        if name.startswith("duesweep_destination_")
    }
    assert found == {
        ("Billing", "dispatched"): 3,
        ("Shipping", "dispatched"): 2,
        ("Sales.Orders", "dispatched"): 1,
        ("Nowhere", "failed"): 1,
        ("Nowhere", "exhausted"): 1,
    }
