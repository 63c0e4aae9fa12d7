"""Traces of a sweep, as an OpenTelemetry collector gets them."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from duesweep.config.adapters.endpoint import tracing as made_tracing
from duesweep.sweep.job import Tracing
from duesweep.sweep.sweep import Engine
from duesweep.sweep.traces import OtlpTracing
from duesweep_testing.builders import delayed_row
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
        headers = json.loads(row.headers) | {"traceparent": traceparent}
        endpoint.load([replace(row, headers=json.dumps(headers))])


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
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    assert collector.services == {"sweeper"}
    assert {headers["api-key"] for headers in collector.headers} == {"secret"}
    assert set(collector.paths) == {"/v1/traces"}


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
