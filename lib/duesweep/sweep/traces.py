"""OpenTelemetry's traces, sent over OTLP/HTTP when a sweep ends, and when a slice does.

No thread sends them: Spark's Python workers are forked, and a worker may end at any time.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.re import parse_env_headers

from duesweep import __version__
from duesweep.core.errors import MessageError, make_printable
from duesweep.core.message import Message
from duesweep.core.world import World
from duesweep.sweep.job import Attributes, Tracing

_log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 2.0
# A collector that did not answer is not used for this time: each sweep would wait for it.
_REST_SECONDS = 60.0
# Of one slice; a slice of millions would need too much memory.
_MOST_SPANS = 2_000
# The SDK keeps no more.
_MOST_LINKS = 128
_ERROR_TYPE = "error.type"
_TRACEPARENT, _TRACESTATE = "traceparent", "tracestate"
_PROPAGATOR = TraceContextTextMapPropagator()
_tracer: ContextVar[Tracer | None] = ContextVar("duesweep_tracer", default=None)


def described_service() -> tuple[tuple[str, str], ...]:
    """This service, as `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe it."""
    resource = Resource({"service.name": "duesweep", "service.version": __version__})
    known = resource.merge(OTELResourceDetector().detect())
    return tuple((name, str(value)) for name, value in known.attributes.items())


class _Rest:
    """Until when a collector that did not answer is not used, in this process."""

    until = 0.0


@dataclass(frozen=True, slots=True)
class OtlpTracing(Tracing):
    """Sends spans to `endpoint`, the whole URL, with `headers` as OpenTelemetry's variable has
    them. `resource` describes the service; `parent` is the `traceparent` of the span above.
    """

    records: ClassVar[bool] = True
    endpoint: str = field(default="", repr=False)
    headers: str = field(default="", repr=False)
    resource: tuple[tuple[str, str], ...] = ()
    parent: str | None = None
    world: World = field(default_factory=World, repr=False)

    @contextmanager
    def recording(self, name: str, attributes: Attributes) -> Iterator[None]:
        """A span above the spans of its block; it sends them all at its end."""
        kept = _Kept()
        provider = TracerProvider(resource=Resource(dict(self.resource)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        tracer = provider.get_tracer("duesweep", __version__)
        above = _PROPAGATOR.extract({_TRACEPARENT: self.parent}) if self.parent else Context()
        token = _tracer.set(tracer)
        try:
            with _opened(tracer, name, context=above, attributes=dict(attributes)):
                yield
        finally:
            _tracer.reset(token)
            self._send(kept.spans)

    @contextmanager
    def span(
        self, name: str, attributes: Attributes, messages: Iterable[Message] = ()
    ) -> Iterator[None]:
        """A span below this thread's open span."""
        tracer = _tracer.get()
        if tracer is None:
            yield
            return
        links, cut = _links(messages)
        told = dict(attributes) | ({"duesweep.links_cut": cut} if cut else {})
        kind = SpanKind.PRODUCER if messages else SpanKind.INTERNAL
        with _opened(tracer, name, kind=kind, attributes=told, links=links):
            yield

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span that is open in this thread."""
        trace.get_current_span().set_attributes(dict(attributes))

    def fail(self, kind: str, reason: str) -> None:
        """Say of the span that is open in this thread that it failed. The first reason stays."""
        span, told = trace.get_current_span(), make_printable(reason)
        span.add_event("exception", {"exception.type": kind, "exception.message": told})
        if isinstance(span, ReadableSpan) and span.status.is_unset:
            span.set_attribute(_ERROR_TYPE, kind)
            span.set_status(Status(StatusCode.ERROR, told))

    def for_tasks(self) -> "OtlpTracing":
        """What records below the span that is open in this thread."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return replace(self, parent=carrier.get(_TRACEPARENT))

    def _send(self, spans: Sequence[ReadableSpan]) -> None:
        if not spans or self.world.clock.seconds() < _Rest.until:
            return
        try:
            is_sent = self._export(spans)
        except Exception as error:  # noqa: BLE001 - no fault of a collector's may fail a sweep
            _log.warning("Traces cannot be sent: %s", make_printable(str(error)))
            is_sent = False
        if not is_sent:
            _Rest.until = self.world.clock.seconds() + _REST_SECONDS
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
def _opened(tracer: Tracer, name: str, **options: Any) -> Iterator[None]:
    """The open span of this thread. An error of the block is an event of it, and its
    status.
    """
    with tracer.start_as_current_span(name, **options) as span:
        try:
            yield
        except Exception as error:
            span.set_attribute(_ERROR_TYPE, type(error).__name__)
            raise


class _Kept(SpanExporter):
    """Keeps the spans of a recording, as many as it may."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep them. The span at the top ends last, and is always kept."""
        if len(self.spans) >= _MOST_SPANS:
            del self.spans[-1]
        self.spans += spans
        return SpanExportResult.SUCCESS


def _links(messages: Iterable[Message]) -> tuple[Sequence[Link], int]:
    """The links of a span, and how many more messages name a span: those are counted unread, as to
    read them all takes a tenth of a batch's time.
    """
    left = iter(messages)
    links = list(islice((link for message in left for link in _link(message)), _MOST_LINKS))
    return links, sum(_names_span(message) for message in left)


def _names_span(message: Message) -> bool:
    return not isinstance(message.headers, MessageError) and _TRACEPARENT in message.headers


def _link(message: Message) -> Iterator[Link]:
    """To the span in which the message was sent, if its headers name one."""
    headers = message.headers
    if isinstance(headers, MessageError):
        return
    carrier = {name: value for name in (_TRACEPARENT, _TRACESTATE) if (value := headers.get(name))}
    context = trace.get_current_span(_PROPAGATOR.extract(carrier, Context())).get_span_context()
    if context.is_valid:
        yield Link(context, {"nservicebus.message_id": message.message_id or ""})
