-- Returns the next batches of a sealed sweep that delivered something, in the order of their ids:
-- about %(messages)s messages. Nobody changes a sealed sweep, so its pieces are always the same. No
-- locks.
SELECT id, outcomes
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind = 'batch' AND outcomes IS NOT NULL AND id > %(after_id)s
ORDER BY id
LIMIT (
    SELECT greatest(1, %(messages)s / greatest(1, max(dispatched)))
    FROM {journal}
    WHERE sweep_id = %(sweep_id)s AND kind = 'batch'
);
