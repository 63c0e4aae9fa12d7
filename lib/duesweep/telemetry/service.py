"""How OpenTelemetry is told what sends its traces and metrics."""

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from duesweep import __version__


def described_service() -> tuple[tuple[str, str], ...]:
    """This service, as `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` describe it."""
    resource = Resource({"service.name": "duesweep", "service.version": __version__})
    known = resource.merge(OTELResourceDetector().detect())
    return tuple((name, str(value)) for name, value in known.attributes.items())
