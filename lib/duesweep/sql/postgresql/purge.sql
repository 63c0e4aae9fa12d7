-- Removes up to a batch of messages, oldest first; locks their rows, skips locked ones.
DELETE FROM {queue}
WHERE id = ANY(ARRAY(SELECT id FROM {queue} ORDER BY seq LIMIT %(batch)s FOR UPDATE SKIP LOCKED));
