-- Returns percentiles of the milliseconds from Due to dispatch in a sealed sweep. No locks.
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY l.ms) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY l.ms) AS p95,
       max(l.ms) AS longest
FROM {journal} j CROSS JOIN LATERAL unnest(j.lateness_ms) AS l (ms)
WHERE j.sweep_id = %(sweep_id)s;
