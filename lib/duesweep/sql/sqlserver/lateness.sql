-- Returns the packed lateness of each batch of a sealed sweep. No locks kept.
SELECT j.lateness_ms
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'batch' AND j.outcomes IS NOT NULL
ORDER BY j.id;
