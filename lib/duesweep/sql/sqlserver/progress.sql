-- Returns what the batches of a sweep have done so far. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(CASE WHEN j.kind = 'batch' THEN 1 END) AS batches,
       COALESCE(SUM(CONVERT(bigint, j.dispatched)), 0) AS dispatched,
       COALESCE(SUM(CONVERT(bigint, j.failed)), 0)
           + COUNT_BIG(CASE WHEN j.kind = 'exhausted' THEN 1 END) AS failed
FROM {journal} j WITH (READPAST)
WHERE j.sweep_id = @sweep_id;
