-- Returns the ends of a sweep's slices, oldest first: each run of a task that came to its end wrote one.
-- No locks kept.
SELECT slice, given, claimed, skipped, gone, later, [left], reason
FROM {journal}
WHERE sweep_id = @sweep_id AND kind = 'slice'
ORDER BY id;
