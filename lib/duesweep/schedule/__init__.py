"""Forms in which other programs run duesweep: cron, systemd, Kubernetes, Airflow."""
