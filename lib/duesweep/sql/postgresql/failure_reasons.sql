-- Returns why messages of a closed sweep failed, the commonest reasons first, each with a destination.
-- No locks.
SELECT f.reason, count(*) AS messages, min(f.destination) AS destination
FROM (
    SELECT left(j.error_text, 500) AS reason, j.destination
    FROM {journal} j
    WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted'
    UNION ALL
    SELECT left(a.error_text, 500), a.destination
    FROM {sweeps} s
    JOIN {attempts} a ON a.source = s.source AND a.last_failed_at BETWEEN s.started_at AND s.closed_at
    WHERE s.sweep_id = %(sweep_id)s
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason
LIMIT %(most)s::integer;
