-- Stores a message until it is due, as the transport does: to be run in the writers' time zone, through
-- which both the cast to timestamptz and whole days go. Locks the new row only.
INSERT INTO {delayed} (headers, body, due)
VALUES (
    %(headers)s, %(body)s,
    timestamptz (now() AT TIME ZONE 'UTC') + make_interval(
        days => %(days)s, hours => %(hours)s, mins => %(minutes)s,
        secs => %(seconds)s + %(milliseconds)s / 1000.0
    )
);
