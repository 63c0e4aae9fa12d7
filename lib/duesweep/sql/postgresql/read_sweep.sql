-- Returns a closed sweep: how it was planned and closed. No locks.
SELECT sweep_id, source, started_at, closed_at, horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s;
