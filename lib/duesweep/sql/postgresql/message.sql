-- Message: one delayed message at a time, for the store's own operations.

-- name: next_due
-- Returns the earliest Due that is stored, NULL where there is none. No locks.
SELECT min(d.{due}){utc} AS due FROM {delayed} d WHERE isfinite(d.{due});

-- name: fetch_next_due
-- Returns the message that has been due for the longest and is eligible, locked; skips what others hold.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM d.{due}) * 1000000)::bigint END AS due_us
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc}
  AND NOT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d.{due}
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;

-- name: find_message
-- Returns a message's key if it is (still) there, locked.
SELECT d.{id}::text AS id FROM {delayed} d WHERE d.{id} = %(key)s::uuid FOR UPDATE OF d;

-- name: store_message
-- Stores a message until an instant; returns its key. As the transport does: to be run in the writers'
-- time zone, through which the cast to timestamptz goes. Locks the new row only.
INSERT INTO {delayed} (headers, body, due)
VALUES (%(headers)s, %(body)s, timestamptz (%(due)s::timestamptz AT TIME ZONE 'UTC'))
RETURNING id::text AS id;

-- name: store_timeout
-- Stores a timeout until an instant, as SQL persistence does: its Time is UTC's clock. Locks the new
-- row only.
INSERT INTO {delayed} (
    "Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"
)
VALUES (
    %(message_key)s::uuid, %(destination)s, %(saga_id)s::uuid, %(body)s,
    %(due)s::timestamptz AT TIME ZONE 'UTC', %(headers)s, %(version)s
);

-- name: send_later
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
