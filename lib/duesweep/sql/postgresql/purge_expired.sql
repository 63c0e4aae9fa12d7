-- Removes up to a batch of messages that have expired; locks their rows, skips locked ones.
DELETE FROM {queue}
WHERE id = ANY(ARRAY(
    SELECT id FROM {queue} WHERE expires < now() AT TIME ZONE 'UTC'
    LIMIT %(batch)s FOR UPDATE SKIP LOCKED
));
