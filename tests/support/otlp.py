"""A collector for traces over OTLP/HTTP, which reads them with OpenTelemetry's own schema."""

import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response


class Collector:
    """The requests so far. `status` is its answer."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.services: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200
        self.url = ""

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def take(self, path: str, body: bytes) -> None:
        if path.endswith("/metrics"):
            self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = [each for each in resource.resource.attributes if each.key == "service.name"]
            self.services |= {each.value.string_value for each in named}
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def figures(self) -> dict[str, float]:
        """The metrics of the last run."""
        (resource,) = self.metrics[-1].resource_metrics
        (scope,) = resource.scope_metrics
        found = {}
        for metric in scope.metrics:
            kind = metric.sum if metric.HasField("sum") else metric.gauge
            (point,) = kind.data_points
            found[metric.name.removeprefix("duesweep_")] = point.as_double or float(point.as_int)
        return found

    def counters(self) -> list[Metric]:
        """The counters of the last run."""
        (resource,) = self.metrics[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return [metric for metric in scope.metrics if metric.HasField("sum")]

    def below(self, parent: Span) -> list[str]:
        return sorted(s.name for s in self.spans if s.parent_span_id == parent.span_id)


def attributes(span: Span) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


class _Server(HTTPServer):
    def thread_target(self) -> None:
        assert self.server is not None
        # How long it takes at most to see that it is to end.
        self.server.serve_forever(poll_interval=0.01)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector within the block, at its `url`."""
    collector = Collector()

    def take(request: Request) -> Response:
        body = request.data
        if request.content_encoding == "gzip":
            body = gzip.decompress(body)
        collector.take(request.path, body)
        collector.paths.append(request.path)
        collector.headers.append({name.lower(): value for name, value in request.headers})
        return Response(status=collector.status)

    with _Server(threaded=True) as server:
        server.expect_request(re.compile("/.*"), method="POST").respond_with_handler(take)
        collector.url = server.url_for("")
        yield collector
