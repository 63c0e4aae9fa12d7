-- Returns the source's sweeps that are not settled, oldest first. No locks kept.
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id,
       CASE WHEN s.closed_at IS NULL THEN 0 ELSE 1 END AS is_closed, s.sealed_at
FROM {sweeps} s
WHERE s.source = @source
ORDER BY s.started_at;
