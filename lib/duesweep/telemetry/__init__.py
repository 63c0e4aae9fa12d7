"""What machines are told of runs: metrics for Prometheus, traces for OpenTelemetry.

A sweep knows nothing of either: it gives its report, and opens spans of `core.tracing`.
"""
