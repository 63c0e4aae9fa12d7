-- Drops the retry counters of messages that are gone; skips what others hold.
DELETE FROM {attempts} a
USING (
    SELECT g.source, g.message_key
    FROM {attempts} g
    WHERE g.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = g.message_key)
    FOR UPDATE OF g SKIP LOCKED
) gone
WHERE a.source = gone.source AND a.message_key = gone.message_key;
