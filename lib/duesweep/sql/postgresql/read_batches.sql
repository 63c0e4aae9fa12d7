-- Returns the next batches of a sealed group that delivered something, in the order of their ids,
-- and their sweeps. Nobody changes a sealed group, so its pieces are always the same. No locks.
SELECT j.id, j.sweep_id, j.outcomes
FROM {journal} j JOIN {sweeps} s USING (sweep_id)
WHERE s.settle_id = %(settle_id)s AND j.kind = 'batch' AND j.outcomes IS NOT NULL AND j.id > %(after_id)s
ORDER BY j.id
LIMIT %(count)s;
