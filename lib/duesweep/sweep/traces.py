"""OpenTelemetry's traces of sweeps, sent over OTLP/HTTP when a sweep ends, without a thread."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode, Tracer
from opentelemetry.util.re import parse_env_headers

from duesweep import __version__
from duesweep.core.errors import make_printable
from duesweep.core.world import World
from duesweep.sweep.job import Attributes, Tracing

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0
# A collector that did not answer is not used for this time: each sweep would wait for it.
_REST_SECONDS = 60.0
_ERROR_TYPE = "error.type"
_tracer: ContextVar[Tracer] = ContextVar("duesweep_tracer")


def described_service() -> tuple[tuple[str, str], ...]:
    """This service, as `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe it."""
    resource = Resource({"service.name": "duesweep", "service.version": __version__})
    known = resource.merge(OTELResourceDetector().detect())
    return tuple((name, str(value)) for name, value in known.attributes.items())


class Rest:
    """Until when a collector that did not answer is not used, in this process."""

    until = 0.0


@dataclass(frozen=True, slots=True)
class OtlpTracing(Tracing):
    """Sends spans to `endpoint`, the whole URL, with `headers` as OpenTelemetry's variable has
    them. `resource` describes the service.
    """

    endpoint: str = field(default="", repr=False)
    headers: str = field(default="", repr=False)
    resource: tuple[tuple[str, str], ...] = ()
    world: World = field(default_factory=World, repr=False)

    @contextmanager
    def recording(self, name: str, attributes: Attributes) -> Iterator[None]:
        """A span above the spans of its block; it sends them all at its end."""
        kept = InMemorySpanExporter()
        provider = TracerProvider(resource=Resource(dict(self.resource)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        token = _tracer.set(provider.get_tracer("duesweep", __version__))
        try:
            with _opened(name, context=Context(), attributes=dict(attributes)):
                yield
        finally:
            _tracer.reset(token)
            self._send(kept.get_finished_spans())

    def span(self, name: str) -> AbstractContextManager[None]:
        """A span below this thread's open span."""
        return _opened(name)

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span that is open in this thread."""
        trace.get_current_span().set_attributes(dict(attributes))

    def fail(self, kind: str, reason: str) -> None:
        """Say of the span that is open in this thread that it failed."""
        span, told = trace.get_current_span(), make_printable(reason)
        span.add_event("exception", {"exception.type": kind, "exception.message": told})
        span.set_attribute(_ERROR_TYPE, kind)
        span.set_status(Status(StatusCode.ERROR, told))

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans or self.world.clock.seconds() < Rest.until:
            return
        try:
            is_sent = self._export(spans)
        except Exception as error:  # noqa: BLE001 - no fault of a collector's may fail a sweep
            _log.warning("Traces cannot be sent: %s", make_printable(str(error)))
            is_sent = False
        if not is_sent:
            Rest.until = self.world.clock.seconds() + _REST_SECONDS
            _log.warning("Traces are not sent for %d seconds", _REST_SECONDS)

    def _export(self, spans: Sequence[ReadableSpan]) -> bool:
        exporter = OTLPSpanExporter(
            endpoint=self.endpoint,
            headers=parse_env_headers(self.headers, liberal=True),
            timeout=_PATIENCE_SECONDS,
        )
        try:
            # It logs errors.
            return exporter.export(spans) is SpanExportResult.SUCCESS
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]


@contextmanager
def _opened(name: str, **options: Any) -> Iterator[None]:
    """The open span of this thread. An error of the block is an event of it, and its status."""
    with _tracer.get().start_as_current_span(name, **options) as span:
        try:
            yield
        except Exception as error:
            span.set_attribute(_ERROR_TYPE, type(error).__name__)
            raise
