"""Traces of a sweep, as an OpenTelemetry collector gets them."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from structlog.testing import capture_logs

from duesweep.config.adapters.context import tracing as made_tracing
from duesweep.core.errors import ConfigError
from duesweep.stores.due import Due, Slices
from duesweep.sweep.in_process import InProcessEngine
from duesweep.sweep.job import Engine, Job, Tracing
from duesweep.sweep.traces import OtlpTracing
from support.endpoint import Endpoint
from support.otlp import Collector, attributes, collecting
from support.sweeps import run_sweep


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    # Another test's collector is gone.
    monkeypatch.setattr("duesweep.sweep.traces.Rest.until", 0.0)
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "sweeper")
        yield found


def _delay(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing").delay_many(3)


def test_sweep_is_a_trace_of_its_steps(
    engine: Engine, endpoint: Endpoint, collector: Collector
) -> None:
    _delay(endpoint)

    assert run_sweep(endpoint, engine).outcome == "done"

    (root,) = collector.named("sweep")
    found = attributes(root)
    assert (found["duesweep.dispatched"], found["duesweep.outcome"]) == (3, "done")
    assert found["duesweep.engine"] == engine.name
    assert collector.below(root) == ["dispatch", "plan", "settle"]
    assert {span.status.code for span in collector.spans} == {Status.STATUS_CODE_UNSET}
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert collector.services == {"sweeper"}
    assert {headers["api-key"] for headers in collector.headers} == {"secret"}
    assert collector.paths == ["/v1/traces"]


@pytest.mark.usefixtures("collector")
def test_slices_get_neither_spans_nor_the_headers_for_the_collector(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delay(endpoint)
    found: list[Tracing] = []
    dispatch = InProcessEngine.dispatch

    def look(engine: InProcessEngine, due: Due, plan: Slices, job: Job) -> Any:
        found.append(job.context.tracing)
        return dispatch(engine, due, plan, job)

    monkeypatch.setattr(InProcessEngine, "dispatch", look)

    run_sweep(endpoint)

    assert found == [Tracing()]


def test_sweep_with_messages_that_failed_is_an_error_with_the_reason(
    endpoint: Endpoint, collector: Collector
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    billing = endpoint.server.sql(endpoint.schema, "Billing")
    endpoint.execute(f"ALTER TABLE {billing} ADD CONSTRAINT takes_nothing CHECK (false)")

    assert run_sweep(endpoint).outcome == "failures"

    (root,) = collector.named("sweep")
    assert (root.status.code, attributes(root)["error.type"]) == (
        Status.STATUS_CODE_ERROR,
        "failures",
    )
    (event,) = root.events
    told = {each.key: each.value.string_value for each in event.attributes}
    assert (event.name, told["exception.type"]) == ("exception", "failures")
    assert told["exception.message"] == root.status.message
    assert "takes_nothing" in root.status.message


def test_sweep_that_an_error_ends_is_an_error(endpoint: Endpoint, collector: Collector) -> None:
    endpoint.set_up("Billing").delay("Billing")
    endpoint.execute(f"DROP TABLE {endpoint.delayed}")

    with pytest.raises(ConfigError):
        run_sweep(endpoint)

    (root,) = collector.named("sweep")
    assert (root.status.code, attributes(root)["error.type"]) == (
        Status.STATUS_CODE_ERROR,
        "ConfigError",
    )
    assert [event.name for event in root.events] == ["exception"]


def test_collector_that_refuses_costs_nothing_but_its_traces(
    endpoint: Endpoint, collector: Collector
) -> None:
    _delay(endpoint)
    collector.status = 400

    done = run_sweep(endpoint)

    assert (done.outcome, endpoint.waiting()) == ("done", [])
    # A process that was refused sends nothing for a while.
    assert collector.paths == ["/v1/traces"]


def test_each_run_sends_its_metrics(endpoint: Endpoint, collector: Collector) -> None:
    _delay(endpoint)

    assert endpoint.run("sweep").code == 0
    first = collector.figures()
    assert endpoint.run("sweep").code == 0
    second = collector.figures()

    assert {each.sum.aggregation_temporality for each in collector.counters()} == {
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    }
    assert {each.name: each.unit for each in collector.counters()} == {
        "duesweep_dispatched_messages": "{message}",
        "duesweep_failed_messages": "{message}",
        "duesweep_exhausted_messages": "{message}",
        "duesweep_dispatched_bytes": "By",
        "duesweep_runs": "{run}",
        "duesweep_late_runs": "{run}",
    }
    assert (first["dispatched_messages"], first["runs"], first["due_messages"]) == (3, 1, 0)
    assert (second["dispatched_messages"], second["runs"], second["run_exit_code"]) == (0, 1, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ],
)
@pytest.mark.usefixtures("collector")
def test_variables_of_opentelemetry_switch_traces_off(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with capture_logs() as lines:
        assert made_tracing() == Tracing()

    assert [line["event"] for line in lines] == (["no_traces"] if value == "grpc" else [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT", "http://h/?key=n33dle"),
        ("ENDPOINT", "http://h;key=n33dle"),
        ("TRACES_ENDPOINT", "n33dle"),
        ("HEADERS", "Authorization Bearer n33dle"),
        ("HEADERS", "a=b,n33dle"),
    ],
)
@pytest.mark.usefixtures("collector")
def test_variable_of_opentelemetry_that_cannot_be_used_is_named_and_not_quoted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)

    with capture_logs() as lines:
        assert made_tracing() == Tracing()

    (line,) = lines
    assert line["event"] == "no_traces"
    assert f"OTEL_EXPORTER_OTLP_{name} is" in line["reason"]
    assert "n33dle" not in str(line)


@pytest.mark.parametrize("own", ["", "/own/path"])
@pytest.mark.usefixtures("collector")
def test_endpoint_of_traces_comes_before_the_common_one(
    monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://common:4318/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", own and f"http://traces{own}")

    made = made_tracing()

    assert isinstance(made, OtlpTracing)
    assert made.endpoint == ("http://traces/own/path" if own else "http://common:4318/v1/traces")
    assert "secret" not in repr(made)


def test_exporter_that_raises_fails_no_sweep(
    endpoint: Endpoint, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    _delay(endpoint)

    def export(*_: object) -> None:
        raise RuntimeError("the exporter is broken")

    monkeypatch.setattr("duesweep.sweep.traces.OTLPSpanExporter.export", export)

    done = run_sweep(endpoint)

    assert (done.outcome, collector.spans) == ("done", [])
