"""Makes what records spans."""

import structlog

from duesweep.config import otlp_settings
from duesweep.sweep.job import Tracing

_log = structlog.get_logger(__name__)


def tracing() -> Tracing:
    """What OpenTelemetry's variables ask for; where that cannot be had, a warning and no traces."""
    settings = otlp_settings("traces")
    if settings is None:
        return Tracing()
    try:
        from duesweep.telemetry.service import described_service  # noqa: PLC0415 - few want it
        from duesweep.telemetry.tracing import OtlpTracing  # noqa: PLC0415
    except ImportError:
        problem = "OpenTelemetry is not installed; install duesweep[otel]"
    else:
        if settings.problem is None:
            return OtlpTracing(settings.endpoint, settings.headers, described_service())
        problem = settings.problem
    _log.warning("no_traces", reason=problem)
    return Tracing()
