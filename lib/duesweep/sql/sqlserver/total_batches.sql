-- Returns what the batches of a sweep did, a row a slice. No locks kept.
SELECT slice,
       SUM(CONVERT(bigint, COALESCE(dispatched, 0))) AS dispatched,
       SUM(CONVERT(bigint, COALESCE(failed, 0))) AS failed,
       SUM(CONVERT(bigint, CASE WHEN kind = 'exhausted' THEN 1 ELSE 0 END)) AS exhausted,
       SUM(COALESCE(body_bytes, 0)) AS bytes,
       MAX(CASE WHEN attempts_changed = 1 OR kind = 'exhausted' THEN 1 ELSE 0 END) AS attempts_changed
FROM {journal}
WHERE sweep_id = @sweep_id AND kind <> 'slice'
GROUP BY slice;
