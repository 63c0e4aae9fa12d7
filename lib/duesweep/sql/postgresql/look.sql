-- Look: what an operator is shown of waiting messages. These statements read only, and lock no rows:
-- their lock on the table (ACCESS SHARE) is one that no sweep and no mover waits for.

-- name: set_first_rows_fast
-- Sets that a cursor's first rows matter in this transaction, not its last ones. Otherwise the planner
-- could sort all messages, although the index on Due has them in order. Returns the new value.
SELECT set_config('cursor_tuple_fraction', '0.00001', true) AS fraction;

-- fragment: from_with_instants
FROM {delayed} d
CROSS JOIN LATERAL (SELECT least(d.{due}{utc}, '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT {{instant: c.due; {{as_utc: c.due}} }} AS instant
) i

-- name: look
-- Returns the messages that are due in a span, those with the earliest Due first, without those that have
-- none. There is no other order within one Due: then the server would have to sort all messages that
-- share it. `first` (included) and `last` (not included) are instants; NULL: no limit. `instant_us` is
-- the instant at which a message is due, as in a claim. The index takes Dues from three hours around
-- the span, since clocks in the writers' zone may have changed in it; the instants decide. A Due
-- after the year 290000, whose microseconds no bigint holds, is shown as that. `body` is NULL. Takes no
-- locks on rows.
SELECT d.{id}::text AS id, d.{headers} AS headers, NULL::bytea AS body, {destination} AS destination,
       coalesce(octet_length(d.{body}), 0) AS body_bytes,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN {{micros: i.instant}} END AS instant_us
{{from_with_instants}}
WHERE d.{due} IS NOT NULL
  AND (%(first)s::timestamptz IS NULL OR (
        d.{due} >= ((%(first)s::timestamptz AT TIME ZONE 'UTC' - interval '3 hours')
            AT TIME ZONE %(zone)s::text){utc}
        AND i.instant >= %(first)s::timestamptz
      ))
  AND (%(last)s::timestamptz IS NULL OR (
        d.{due} < ((%(last)s::timestamptz AT TIME ZONE 'UTC' + interval '3 hours')
            AT TIME ZONE %(zone)s::text){utc}
        AND i.instant < %(last)s::timestamptz
      ))
ORDER BY d.{due};

-- name: look_timeless
-- Returns the messages without a Due, as `look` does. Takes no locks on rows.
SELECT d.{id}::text AS id, d.{headers} AS headers, NULL::bytea AS body, {destination} AS destination,
       coalesce(octet_length(d.{body}), 0) AS body_bytes, NULL::bigint AS due_us, NULL::bigint AS instant_us
FROM {delayed} d
WHERE d.{due} IS NULL;

-- name: find
-- Returns the messages with these keys, as `look` does; with their bodies if `with_body` is true. Takes
-- no locks on rows.
SELECT d.{id}::text AS id, d.{headers} AS headers, CASE WHEN %(with_body)s THEN d.{body} END AS body,
       {destination} AS destination, coalesce(octet_length(d.{body}), 0) AS body_bytes,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN {{micros: i.instant}} END AS instant_us
{{from_with_instants}}
WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: read_failures
-- Returns the retry counters of these messages: how often each has failed, when it is eligible again,
-- and its last error. Takes no locks on rows.
SELECT message_key::text AS message_key, attempts, next_attempt_at, error_text
FROM {attempts}
WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: count_buckets
-- Returns how many messages are due before the first of these instants (bucket 0), from the first to
-- before the second (1), and so on. Messages without a Due are in the last bucket. Buckets without
-- messages have no row. Takes no locks on rows.
SELECT coalesce(width_bucket(d.{due}, b.dues), cardinality(b.dues)) AS bucket, count(*) AS messages
FROM {delayed} d
CROSS JOIN (
    SELECT ARRAY(
        SELECT ((e.instant AT TIME ZONE 'UTC') AT TIME ZONE %(zone)s::text){utc}
        FROM unnest(%(ends)s::timestamptz[]) AS e (instant)
        ORDER BY e.instant
    ) AS dues
) b
GROUP BY 1;
