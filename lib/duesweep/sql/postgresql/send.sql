-- Appends a message to a queue table; without a time to be received it never expires. Locks the new
-- row only.
INSERT INTO {queue} (id, expires, headers, body)
VALUES (
    %(id)s,
    now() AT TIME ZONE 'UTC'
        + make_interval(secs => %(seconds)s::int + %(milliseconds)s::int / 1000.0),
    %(headers)s, %(body)s
);
