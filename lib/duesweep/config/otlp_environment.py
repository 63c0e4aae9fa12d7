"""What OpenTelemetry's own variables say of traces and metrics."""

import os
from dataclasses import dataclass, field
from typing import Literal

_PREFIX = "OTEL_EXPORTER_OTLP"
_PROTOCOL = "http/protobuf"

Signal = Literal["traces", "metrics"]


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where a signal goes. `problem`: why it cannot; None: it can."""

    endpoint: str
    headers: str = field(default="", repr=False)
    problem: str | None = None


def otlp_settings(signal: Signal) -> OtlpSettings | None:
    """Where a signal goes; None: nowhere."""
    own = f"_{signal.upper()}"
    endpoint, common = _variable(f"{own}_ENDPOINT"), _variable("_ENDPOINT")
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or os.environ.get(f"OTEL{own}_EXPORTER") == "none" or not (endpoint or common):
        return None
    protocol = _first(f"{own}_PROTOCOL", "_PROTOCOL") or _PROTOCOL
    is_known = protocol == _PROTOCOL
    return OtlpSettings(
        endpoint or f"{common.rstrip('/')}/v1/{signal}",
        _first(f"{own}_HEADERS", "_HEADERS"),
        None if is_known else f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, not {_PROTOCOL}",
    )


def _first(*names: str) -> str:
    return next(filter(None, map(_variable, names)), "")


def _variable(name: str) -> str:
    return os.environ.get(_PREFIX + name, "")
