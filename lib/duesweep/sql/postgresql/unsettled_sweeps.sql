-- Returns the source's sweeps that are not settled, oldest first. No locks.
SELECT sweep_id, closed_at IS NOT NULL AS is_closed, sealed_at
FROM {sweeps}
WHERE source = %(source)s
ORDER BY started_at;
