-- Operators: what people look at, change, hold back, audit and tidy up. What only reads locks no rows: its
-- lock on the table (ACCESS SHARE) is one that no sweep and no mover waits for.
--
-- Fragments of other files: as_utc, instant, micros, readable (batch.sql).

-- name: set_first_rows_fast
-- Sets that a cursor's first rows matter, not its last ones. Else the planner could sort all messages, although
-- the index on Due has them in order. Returns the new value.
SELECT set_config('cursor_tuple_fraction', '0.00001', true) AS fraction;

-- fragment: from_with_instants
-- A Due after the year 290000, whose microseconds no bigint holds, is shown as that.
FROM {delayed} d
CROSS JOIN LATERAL (SELECT least(d.{due}{utc}, '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT {{instant: c.due; {{as_utc: c.due}} }} AS instant
) i

-- name: look
-- Returns the messages due from the instant `first` to before `end` (NULL: no limit), the earliest Due first.
-- There is no order within one Due: the server would have to sort all messages that share it.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, NULL::bytea AS body, {{readable: {destination}}} AS destination,
       coalesce(octet_length(d.{body}), 0) AS body_bytes,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN {{micros: i.instant}} END AS instant_us
{{from_with_instants}}
WHERE d.{due} IS NOT NULL
  -- The index takes three hours more: clocks may have changed in the span. The instants decide.
  AND (%(first)s::timestamptz IS NULL OR (
        d.{due} >= ((%(first)s::timestamptz AT TIME ZONE 'UTC' - interval '3 hours')
            AT TIME ZONE %(zone)s::text){utc}
        AND i.instant >= %(first)s::timestamptz
      ))
  AND (%(end)s::timestamptz IS NULL OR (
        d.{due} < ((%(end)s::timestamptz AT TIME ZONE 'UTC' + interval '3 hours')
            AT TIME ZONE %(zone)s::text){utc}
        AND i.instant < %(end)s::timestamptz
      ))
ORDER BY d.{due};

-- name: look_timeless
-- Returns the messages without a Due, as `look` does.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, NULL::bytea AS body, {{readable: {destination}}} AS destination,
       coalesce(octet_length(d.{body}), 0) AS body_bytes, NULL::bigint AS due_us, NULL::bigint AS instant_us
FROM {delayed} d
WHERE d.{due} IS NULL;

-- name: find
-- Returns the messages with these keys, as `look` does; with their bodies if asked for `with_body`.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, CASE WHEN %(with_body)s THEN d.{body} END AS body,
       {{readable: {destination}}} AS destination, coalesce(octet_length(d.{body}), 0) AS body_bytes,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN {{micros: i.instant}} END AS instant_us
{{from_with_instants}}
WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: read_failures
-- Returns how often each of these messages has failed, when it is eligible again, and its last error.
SELECT message_key::text AS message_key, attempts, next_attempt_at, error_text
FROM {attempts}
WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: count_buckets
-- Returns how many messages are due before the first of these instants (bucket 0), before the second (1), and so
-- on. The last holds those without a Due too; a bucket without messages has no row.
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

-- name: hold
-- Returns and locks the messages of these keys that are still there, due or not, as `claim` does; skips rows
-- that others hold. A Due after the year 290000 is shown as in `look`.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, d.{body} AS body, {{readable: {destination}}} AS destination,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM {{instant: c.due; {{as_utc: c.due}} }}) * 1000000)::bigint END AS instant_us
FROM {delayed} d
CROSS JOIN LATERAL (SELECT least(d.{due}{utc}, timestamptz '290000-01-01 00:00:00+00') AS due) c
WHERE d.{id} = ANY(%(keys)s::uuid[])
FOR UPDATE OF d SKIP LOCKED;

-- name: count_present
-- Returns how many of these messages are there, locked or not. Runs after `hold`, as a statement of its
-- own.
SELECT count(*) AS present FROM {delayed} d WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: journal_cancelled
-- Journals messages that are cancelled, whole, with headers and bodies of their rows, whose locks this
-- transaction holds. An infinite Due becomes the first or last year that the journal has: restored, it is alike.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, body
)
SELECT %(sweep_id)s, 'cancelled', %(changed_us)s, d.{id}::text, c.message_id, c.message_type, c.destination,
       CASE d.{due} WHEN 'infinity' THEN {{micros: timestamptz '290000-01-01 00:00:00+00'}}
           WHEN '-infinity' THEN {{micros: timestamptz '4713-01-01 00:00:00+00 BC'}}
           ELSE c.due_before_us END,
       c.attempts, coalesce(octet_length(d.{body}), 0), d.{headers}, d.{body}
FROM unnest(
    %(message_key)s::uuid[], %(message_id)s::text[], %(message_type)s::text[], %(destination)s::text[],
    %(due_before_us)s::bigint[], %(attempts)s::integer[]
) AS c (message_key, message_id, message_type, destination, due_before_us, attempts)
JOIN {delayed} d ON d.{id} = c.message_key;

-- name: reschedule
-- Gives messages a new Due: UTC's clock time at an instant, as the writers' clock would show it. Returns the
-- instant at which each is due now: in the hour of a clock change it can differ.
UPDATE {delayed} d
SET {due} = ((n.due AT TIME ZONE 'UTC') AT TIME ZONE %(zone)s::text){utc}
FROM unnest(%(keys)s::uuid[], %(dues)s::timestamptz[]) AS n (message_key, due)
WHERE d.{id} = n.message_key
RETURNING d.{id}::text AS message_key,
          {{micros: {{as_utc: d.{due}{utc}}} }}
              AS instant_us;

-- name: read_instants
-- Returns the instant at which each of these messages is due.
SELECT d.{id}::text AS message_key,
       {{micros: {{as_utc: d.{due}{utc}}} }}
           AS instant_us
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: postpone_attempts
-- Lets messages in back-off be tried again at their new Dues.
UPDATE {attempts} a
SET next_attempt_at = n.due
FROM unnest(%(message_key)s::uuid[], %(new_due)s::timestamptz[]) AS n (message_key, due)
WHERE a.source = %(source)s AND a.message_key = n.message_key;

-- name: journal_changes
-- Journals changes without headers and bodies.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, "of", new_key, attempts, body_bytes
)
SELECT %(sweep_id)s, c.change, %(changed_us)s, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us, c.due_after_us, c.undone, c.new_key, c.attempts, c.body_bytes
FROM unnest(
    %(change)s::text[], %(message_key)s::text[], %(message_id)s::text[], %(message_type)s::text[],
    %(destination)s::text[], %(due_before_us)s::bigint[], %(due_after_us)s::bigint[],
    %(undone)s::text[], %(new_key)s::text[], %(attempts)s::integer[], %(body_bytes)s::bigint[]
) AS c (
    change, message_key, message_id, message_type, destination, due_before_us, due_after_us, undone,
    new_key, attempts, body_bytes
);

-- name: pause
-- Pauses destinations, or changes a pause.
INSERT INTO {pauses} AS p (source, pattern, until_at, given_by, reason)
VALUES (%(source)s, %(pattern)s, %(until)s::timestamptz, %(given_by)s, %(reason)s)
ON CONFLICT (source, pattern) DO UPDATE SET
    paused_at = excluded.paused_at,
    until_at = excluded.until_at,
    given_by = excluded.given_by,
    reason = excluded.reason;

-- name: resume
-- Ends a pause of destinations.
DELETE FROM {pauses} WHERE source = %(source)s AND pattern = %(pattern)s;

-- name: read_pauses
-- Returns the pauses in force.
SELECT pattern, paused_at, until_at, given_by, reason
FROM {pauses}
WHERE source = %(source)s AND (until_at IS NULL OR until_at > clock_timestamp())
ORDER BY pattern;

-- name: drop_old_pauses
-- Deletes pauses that have ended.
DELETE FROM {pauses} WHERE source = %(source)s AND until_at <= clock_timestamp();

-- name: stored_keys
-- Returns the keys of all messages, in no order.
SELECT d.{id}::text AS message_key FROM {delayed} d;

-- name: gone_counters
-- Returns the keys of retry counters whose messages are not stored any more, up to `most`.
SELECT a.message_key::text AS message_key
FROM {attempts} a
WHERE a.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = a.message_key)
ORDER BY a.message_key
LIMIT %(most)s;

-- name: orphaned_journal
-- Returns the ids of sweeps and commands that have rows in the journal and no row of their own: no
-- sweep settles these.
SELECT j.sweep_id
FROM (SELECT sweep_id FROM {journal} UNION SELECT sweep_id FROM {changes}) j
WHERE NOT EXISTS (SELECT FROM {sweeps} s WHERE s.sweep_id = j.sweep_id)
ORDER BY j.sweep_id;

-- name: dropped_sources
-- Returns the sources whose delayed table does not exist any more, and how many of their sweeps and commands
-- are not settled.
SELECT b.source, b.delayed, (SELECT count(*) FROM {sweeps} s WHERE s.source = b.source) AS unsettled
FROM {bindings} b
WHERE to_regclass(b.delayed) IS NULL
ORDER BY b.source;

-- name: forget_attempts
-- Deletes all retry counters of a source.
DELETE FROM {attempts} WHERE source = %(source)s;

-- name: forget_pauses
-- Deletes all pauses of a source.
DELETE FROM {pauses} WHERE source = %(source)s;

-- name: forget_limits
-- Deletes the reservations of a source's limits.
DELETE FROM {limits} WHERE source = %(source)s;
