-- Stores a message until an instant; returns its key. As the transport does: to be run in the writers'
-- time zone, through which the cast to timestamptz goes. Locks the new row only.
INSERT INTO {delayed} (headers, body, due)
VALUES (%(headers)s, %(body)s, timestamptz (%(due)s::timestamptz AT TIME ZONE 'UTC'))
RETURNING id::text AS id;
