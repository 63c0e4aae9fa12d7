-- Returns the next batches of a sealed sweep that delivered something, in the order of their ids:
-- about @messages messages. Nobody changes a sealed sweep, so its pieces are always the same. No
-- locks kept.
SELECT j.id, j.outcomes
FROM (
    SELECT b.id, b.outcomes, ROW_NUMBER() OVER (ORDER BY b.id) AS position
    FROM {journal} b
    WHERE b.sweep_id = @sweep_id AND b.kind = 'batch' AND b.outcomes IS NOT NULL AND b.id > @after_id
) j
CROSS JOIN (
    SELECT MAX(m.dispatched) AS longest
    FROM {journal} m
    WHERE m.sweep_id = @sweep_id AND m.kind = 'batch'
) l
WHERE j.position <= CASE WHEN l.longest > 0 AND @messages / l.longest > 1 THEN @messages / l.longest ELSE 1 END
ORDER BY j.id;
