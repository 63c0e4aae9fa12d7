-- Message: operations on one delayed message.

-- name: next_due
-- Returns the earliest Due from `since` on, as the instant at which it is due. NULL: there is none.
-- Python's times end at the years 1 and 9999, so no Due is told as earlier or later than that, with
-- two days for time zones. Takes no locks.
SELECT CASE WHEN earliest.due IS NOT NULL THEN
           (least(greatest(earliest.due, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00')
               AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC'
       END AS due
FROM (
    SELECT min(d.{due}){utc} AS due
    FROM {delayed} d
    WHERE d.{due} >= %(since)s::timestamptz{utc} AND isfinite(d.{due})
) earliest;

-- name: fetch_next_due
-- Returns the eligible message that has been due longest. Locks it until this transaction ends;
-- skips rows that others hold. `instant_us` is the instant at which it is due, as in a claim.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       {{due_and_instant}}
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc}
  AND {{not_in_back_off: clock_timestamp()}}
ORDER BY d.{due}
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;

-- name: find_message
-- Returns a message's key if the message is still there. Locks it until this transaction ends;
-- waits for others that hold it.
SELECT d.{id}::text AS id FROM {delayed} d WHERE d.{id} = %(key)s::uuid FOR UPDATE OF d;

-- name: store_message
-- Stores a message until an instant, as the transport does, and returns its key. The cast to
-- timestamptz depends on the session's time zone, so this must run in the writers' time zone. Locks
-- the new row only.
INSERT INTO {delayed} (headers, body, due)
VALUES (%(headers)s, %(body)s, timestamptz (%(due)s::timestamptz AT TIME ZONE 'UTC'))
RETURNING id::text AS id;

-- name: store_timeout
-- Stores a timeout until an instant, as SQL persistence does: its Time is the clock time in UTC.
-- Locks the new row only.
INSERT INTO {delayed} (
    "Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"
)
VALUES (
    %(message_key)s::uuid, %(destination)s, %(saga_id)s::uuid, %(body)s,
    %(due)s::timestamptz AT TIME ZONE 'UTC', %(headers)s, %(version)s
);

-- name: send_later
-- Stores a message until a delay has passed, as the transport does. The cast to timestamptz and
-- whole days depend on the session's time zone, so this must run in the writers' time zone. Locks
-- the new row only.
INSERT INTO {delayed} (headers, body, due)
VALUES (
    %(headers)s, %(body)s,
    timestamptz (now() AT TIME ZONE 'UTC') + make_interval(
        days => %(days)s, hours => %(hours)s, mins => %(minutes)s,
        secs => %(seconds)s + %(milliseconds)s / 1000.0
    )
);
