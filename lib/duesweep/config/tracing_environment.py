"""What OpenTelemetry's own variables say of traces."""

import os
from dataclasses import dataclass, field

_PREFIX = "OTEL_EXPORTER_OTLP"
_PROTOCOL = "http/protobuf"


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Where traces go. `problem`: why they cannot; None: they can."""

    endpoint: str
    headers: str = field(default="", repr=False)
    problem: str | None = None


def trace_settings() -> TraceSettings | None:
    """Where traces go; None: nowhere."""
    endpoint, common = _variable("_TRACES_ENDPOINT"), _variable("_ENDPOINT")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or os.environ.get("OTEL_TRACES_EXPORTER") == "none" or not (endpoint or common):
        return None
    protocol = _first("_TRACES_PROTOCOL", "_PROTOCOL") or _PROTOCOL
    is_known = protocol == _PROTOCOL
    return TraceSettings(
        endpoint or f"{common.rstrip('/')}/v1/traces",
        _first("_TRACES_HEADERS", "_HEADERS"),
        None if is_known else f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, not {_PROTOCOL}",
    )


def _first(*names: str) -> str:
    return next(filter(None, map(_variable, names)), "")


def _variable(name: str) -> str:
    return os.environ.get(_PREFIX + name, "")
