"""Traces of a sweep, as an OpenTelemetry collector gets them."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from structlog.testing import capture_logs

from duesweep.config.adapters.endpoint import tracing as made_tracing
from duesweep.core.errors import ConfigError
from duesweep.sweep.job import Tracing
from duesweep.sweep.sweep import Engine
from duesweep.sweep.traces import OtlpTracing
from duesweep_testing.builders import DelayedRow, delayed_row
from support.endpoint import Endpoint
from support.otlp import Collector, attributes, collecting
from support.sweeps import run_sweep

_TRACE, _SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    # Another test's collector is gone.
    monkeypatch.setattr("duesweep.sweep.traces._Rest.until", 0.0)
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=secret")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "sweeper")
        yield found


def _delay(endpoint: Endpoint) -> None:
    endpoint.set_up("Billing")
    endpoint.delay("Billing")
    for traceparent in (f"00-{_TRACE}-{_SPAN}-01", "nonsense"):
        row = delayed_row("Billing", due=endpoint.due_in(-60))
        endpoint.load([replace(row, headers=_sent(row, traceparent))])


def _sent(row: DelayedRow, traceparent: str) -> str:
    """Its headers as NServiceBus stores them: without spaces, and the destination last."""
    headers = {"traceparent": traceparent} | json.loads(row.headers or "")
    return json.dumps(headers, separators=(",", ":"))


def test_sweep_slices_and_sends_are_one_trace_with_links_to_who_sent_the_messages(
    engine: Engine, endpoint: Endpoint, collector: Collector
) -> None:
    _delay(endpoint)

    assert run_sweep(endpoint, engine).outcome == "done"

    (root,) = collector.named("sweep")
    found = attributes(root)
    assert (found["duesweep.dispatched"], found["duesweep.outcome"]) == (3, "done")
    assert found["duesweep.engine"] == engine.name
    slices = collector.named("slice")
    assert collector.below(root) == sorted(["plan", "settle"] + ["slice"] * len(slices))
    sends = [span for span in collector.spans if span.name.startswith("send ")]
    assert {span.parent_span_id for span in sends} <= {span.span_id for span in slices}
    counts = [attributes(span)["messaging.batch.message_count"] for span in sends]
    assert sum(int(count) for count in counts) == 3
    (link,) = [link for span in sends for link in span.links]
    assert (link.trace_id.hex(), link.span_id.hex()) == (_TRACE, _SPAN)
    assert link.attributes[0].key == "nservicebus.message_id"
    assert {span.name for span in sends} == {"send Billing"}
    assert attributes(sends[0]) | {"messaging.batch.message_count": 0} == {
        "messaging.system": "postgresql",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "Billing",
        "messaging.batch.message_count": 0,
        "duesweep.queue": f'"{endpoint.schema}"."Billing"',
    }
    assert {span.status.code for span in collector.spans} == {Status.STATUS_CODE_UNSET}
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert collector.services == {"sweeper"}
    assert {headers["api-key"] for headers in collector.headers} == {"secret"}
    assert set(collector.paths) == {"/v1/traces"}


def test_send_that_is_refused_and_its_sweep_are_errors_with_the_exception_as_an_event(
    endpoint: Endpoint, collector: Collector
) -> None:
    endpoint.set_up("Billing").delay("Billing")
    billing = endpoint.server.sql(endpoint.schema, "Billing")
    endpoint.execute(f"ALTER TABLE {billing} ADD CONSTRAINT takes_nothing CHECK (false)")

    assert run_sweep(endpoint).outcome == "failures"

    failed = [*collector.named("send Billing"), *collector.named("slice")]
    assert len(failed) == 2
    for span in failed:
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert "takes_nothing" in span.status.message
        assert attributes(span)["error.type"] == "RefusedMessageError"
        (event,) = span.events
        told = {each.key: each.value.string_value for each in event.attributes}
        assert (event.name, told["exception.type"]) == ("exception", "RefusedMessageError")
        assert told["exception.message"] == span.status.message
    (root,) = collector.named("sweep")
    assert (root.status.code, attributes(root)["error.type"]) == (
        Status.STATUS_CODE_ERROR,
        "failures",
    )
    assert [event.name for event in root.events] == ["exception"]
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


def test_links_that_were_cut_are_counted(endpoint: Endpoint, collector: Collector) -> None:
    endpoint.set_up("Billing")
    rows = [delayed_row("Billing", due=endpoint.due_in(-60)) for _ in range(130)]
    traceparent = f"00-{_TRACE}-{_SPAN}-01"
    endpoint.load([replace(row, headers=_sent(row, traceparent)) for row in rows])

    assert run_sweep(endpoint).outcome == "done"

    (send,) = collector.named("send Billing")
    assert (len(send.links), attributes(send)["duesweep.links_cut"]) == (128, 2)


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
