-- Returns the first message that nobody holds, its expiry and the server's time, and removes it: locks
-- its row, skips locked ones, waits for none. No row: there is nothing to receive.
DELETE FROM {queue}
WHERE id = (SELECT id FROM {queue} ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, headers, body, expires, now() AT TIME ZONE 'UTC' AS utc_now;
