"""What machines are told of runs: metrics for Prometheus, and traces and metrics of OpenTelemetry.

A sweep knows nothing of it: it gives its report, and opens spans that cost nothing where nobody
wants them (`duesweep.core.spans`).
"""
