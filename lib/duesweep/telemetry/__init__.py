"""What machines are told of runs: metrics for Prometheus. A sweep knows nothing of it."""
