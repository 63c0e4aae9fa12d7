-- Returns why messages of a closed sweep failed, the commonest reasons first, each with a destination.
-- No locks kept. The columns have milliseconds, rounded, so the sweep's span has one more at its ends.
SELECT TOP (CONVERT(int, @most)) f.reason, COUNT(*) AS messages, MIN(f.destination) AS destination
FROM (
    SELECT LEFT(j.error_text, 500) AS reason, LEFT(j.destination, 400) AS destination
    FROM {journal} j
    WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted'
    UNION ALL
    SELECT LEFT(a.error_text, 500), LEFT(a.destination, 400)
    FROM {sweeps} s
    JOIN {attempts} a ON a.source = s.source
        AND a.last_failed_at BETWEEN DATEADD(millisecond, -1, s.started_at) AND DATEADD(millisecond, 1, s.closed_at)
    WHERE s.sweep_id = @sweep_id
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason;
