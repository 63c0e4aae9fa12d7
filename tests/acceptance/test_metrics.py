"""The metrics of `duesweep sweep`, whatever it comes to."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duesweep.cli.app import main
from duesweep.telemetry.prometheus import figures_in
from support.endpoint import Endpoint

Captured = pytest.CaptureFixture[str]


def _sweep(endpoint: Endpoint, **overrides: object) -> dict[str, float]:
    """Sweep with a metrics file; what it then holds, without the names' prefix."""
    file = endpoint.folder / "sales.prom"
    config = endpoint.config_file(metrics__textfile=str(file), **overrides)
    code = main(["sweep", "--config", str(config)])
    families = text_string_to_metric_families(file.read_text(encoding="utf-8"))
    samples = {s.name.removeprefix("duesweep_"): s.value for f in families for s in f.samples}
    assert samples["run_exit_code"] == code
    return samples


def test_runs_with_and_without_work_and_with_failures_are_told(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay_many(3, ["Billing"])

    done = _sweep(endpoint)
    assert (done["run_exit_code"], done["dispatched_messages_total"]) == (0, 3)
    assert (done["due_messages"], done["oldest_due_age_seconds"]) == (0, 0)
    assert done["lateness_max_seconds"] > 0
    assert done["last_success_timestamp_seconds"] == done["last_run_timestamp_seconds"]

    endpoint.delay("Nowhere")
    failed = _sweep(endpoint)
    assert (failed["run_exit_code"], failed["failed_messages_total"]) == (3, 1)
    # It waits for its next attempt, so the next sweep would not take it, but it is due.
    assert failed["due_messages"] == 0
    assert failed["oldest_due_age_seconds"] > 0
    assert failed["last_success_timestamp_seconds"] == done["last_run_timestamp_seconds"]

    idle = _sweep(endpoint)
    assert (idle["run_exit_code"], idle["runs_total"]) == (0, 3)
    assert (idle["dispatched_messages_total"], idle["failed_messages_total"]) == (3, 1)
    assert "lateness_max_seconds" not in idle
    assert idle["last_success_timestamp_seconds"] > failed["last_success_timestamp_seconds"]


def test_store_out_of_reach_is_told(endpoint: Endpoint, capsys: Captured) -> None:
    nowhere = "postgresql://postgres@127.0.0.1:1/postgres"

    told = _sweep(endpoint, store__dsn=nowhere, store__name="sales")

    assert told["run_exit_code"] == 4
    assert not {"due_messages", "last_success_timestamp_seconds"} & told.keys()
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_gateway_that_is_down_is_one_sentence_and_changes_nothing(
    endpoint: Endpoint, capsys: Captured
) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    url = "http://sweeper:secret@127.0.0.1:1"

    assert main(["sweep", "--config", str(endpoint.config_file(metrics__pushgateway=url))]) == 0

    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("duesweep: The Pushgateway at http://127.0.0.1:1 did not get")
    assert endpoint.waiting() == []


def test_fleet_has_one_file_and_a_store_out_of_reach_tells_no_success(endpoint: Endpoint) -> None:
    good = endpoint.named("Sales")
    good.set_up("Mails")
    good.delay_many(3, ["Mails"])
    file, config = endpoint.folder / "fleet.prom", endpoint.folder / "fleet.toml"
    config.write_text(
        f"""
        defaults.ledger.root = "{endpoint.folder / "ledger"}"
        defaults.metrics.textfile = "{file}"
        defaults.store.kind = "postgresql"
        defaults.slo.lateness_seconds = 0.001
        [[endpoint]]
        store = {{name = "good", endpoint = "Sales", dsn = "{endpoint.dsn}"}}
        [[endpoint]]
        store = {{name = "down", endpoint = "Down", dsn = "postgresql://p@127.0.0.1:1/p"}}
        """
    )

    assert main(["sweep", "--config", str(config)]) == 4

    found = figures_in(file.read_text(encoding="utf-8"))
    codes = {source.partition("/")[0]: f["duesweep_run_exit_code"] for source, f in found.items()}
    assert codes == {"good": 5, "down": 4}
    (done,) = (f for source, f in found.items() if source.startswith("good"))
    assert done["duesweep_dispatched_messages_total"] == 3
    assert all("duesweep_last_success_timestamp_seconds" not in f for f in found.values())
