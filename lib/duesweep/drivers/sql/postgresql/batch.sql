-- Batch: the statements of a task's transaction, in its order: fence, claim, finish, the end of a slice; and
-- statements for single messages.
--
-- Fragments of other files: not_in_back_off (plan.sql).

-- fragment: readable
-- A stored text with escapes, such as \x81, for characters of the database's encoding that have no equivalent in
-- UTF-8. The server refuses to send these, and with them all other rows.
{text_begin}$1{text_end}

-- fragment: micros
(extract(epoch FROM $1) * 1000000)::bigint

-- fragment: as_utc
-- The clock time in the writers' zone, read as UTC: the stored Due is off by that zone's offset.
($1 AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC'

-- fragment: instant
-- In the first year that the server knows, clocks west of UTC would show a time before it, which is an error.
CASE
    WHEN $1 < timestamptz '4713-01-01 00:00:00+00 BC' THEN $1
    ELSE $2
END

-- fragment: instant_us
-- The instant at which a message is due. It is not later than `latest`, which a sweep gives that does not look
-- ahead: `hold` and `look` must not have that bound.
CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM {{instant: d.{due}{utc}
    least(
        {{as_utc: d.{due}{utc}}}, %(latest)s::timestamptz
    )
}}) * 1000000)::bigint END AS instant_us

-- fragment: due_and_instant
CASE WHEN isfinite(d.{due}) THEN {{micros: d.{due}}} END AS due_us,
{{instant_us}}

-- name: fence
-- Returns whether the sweep is open and is to stop, whether its source has pauses, and the time. Locks the sweep's
-- row until this transaction ends: closing takes FOR UPDATE, so the sweep stays open until then.
SELECT closed_at IS NULL AS is_open,
       coalesce(stop_at <= clock_timestamp(), false) AS is_stopping,
       EXISTS (SELECT FROM {pauses} p WHERE p.source = s.source) AS has_pauses,
       {{micros: clock_timestamp()}} AS server_us
FROM {sweeps} s
WHERE sweep_id = %(sweep_id)s
FOR KEY SHARE OF s;

-- fragment: is_due
-- No index serves this form: rows are found by their keys or places. To a planner that has the statistics of an empty
-- table, the index on Due would be as good, and it leads to all due rows, also to deleted ones that a snapshot sees.
(d.{due} < %(horizon)s::timestamptz{utc}) IS TRUE

-- name: claim
-- Returns and locks the messages of these claim keys that are still there and still due; skips rows that
-- others hold.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, d.{body} AS body, {{readable: {destination}}} AS destination,
       {{due_and_instant}}
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]) AND {{is_due}}
FOR UPDATE OF d SKIP LOCKED;

-- name: check_constraints_at_once
-- Checks deferred constraints with each statement of this transaction. At its COMMIT one could refuse a whole
-- batch, in every attempt.
SET CONSTRAINTS ALL IMMEDIATE;

-- fragment: move
WITH moved AS MATERIALIZED (
    DELETE FROM {delayed} d
    WHERE $1 AND {{is_due}}
      -- Of tables that have the destination in a column.
      AND coalesce({destination}, '') = %(destination)s::text
    RETURNING d.{id} AS id, d.{body} AS body, octet_length(d.{headers}) AS header_bytes,
        -- All of it if the tail, which is to be cut off, is empty.
        split_part(d.{headers}, %(tail)s::text, 1) AS headers,
        {{instant_us}}
), arrived AS (
    INSERT INTO {queue} (id, headers, body)
    -- Ids that begin with the time, followed by a hash of the message's own: the server's generators take 4 µs each, and
    -- SHA-256 another 0.6.
    SELECT encode(%(time)s::bytea || int8send(uuid_hash_extended(m.id, 0)), 'hex')::uuid,
           m.headers || %(end)s::text, m.body
    FROM moved m
    ORDER BY m.instant_us
    RETURNING 1
)
SELECT count(*) AS messages, (SELECT count(*) FROM arrived) AS arrived,
       -- Only the tail was cut off. Nothing is after it.
       bool_and(octet_length(m.headers) + octet_length(%(tail)s::text) = m.header_bytes) AS have_one_destination,
       string_agg(m.id::text, ',') AS keys,
       -- JSON never has this character.
       string_agg(m.headers, E'\x1f') AS headers,
       string_agg(int8send(coalesce(m.instant_us, %(never)s::bigint)), '') AS instants_us,
       string_agg(int8send(coalesce(octet_length(m.body), 0)), '') AS body_bytes
FROM moved m

-- name: move
-- Moves the messages of these claim keys that are still there and still due into a queue, and returns them in one
-- row, all columns in one order. Waits for rows that others hold, for as long as `set_lock_wait` has set.
{{move: d.{id} = ANY(%(keys)s::uuid[])}};

-- name: move_from_places
-- Moves messages and waits as `move` does, but finds rows by their places, without the index of keys: where a row has
-- left its place, another one may be there.
{{move: d.ctid = ANY(%(places)s::tid[])}};

-- name: find_delete_hooks
-- Returns whether a rule or a row trigger could move what `move` removes elsewhere, and the time. Runs
-- after `move`, whose lock on the table keeps others from adding one.
WITH RECURSIVE parts (relid) AS (
    SELECT %(delayed)s::regclass::oid
    UNION ALL
    SELECT i.inhrelid FROM parts p JOIN pg_inherits i ON i.inhparent = p.relid
)
SELECT EXISTS (
    SELECT FROM parts p
    WHERE EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = p.relid AND r.ev_type = '4')
       OR EXISTS (
        -- before (2) each row (1) of a deletion (8)
        SELECT FROM pg_trigger g
        WHERE g.tgrelid = p.relid AND g.tgtype & 11 = 11 AND g.tgenabled <> 'D'
      )
) AS found, {{micros: clock_timestamp()}} AS server_us;

-- name: explain_unclaimed
-- Returns why claim keys led to no message: `skipped` are there and due, so others hold them; `later` are no
-- longer due. Runs after the claim, as a statement of its own.
SELECT count(*) FILTER (WHERE is_due) AS skipped, count(*) FILTER (WHERE NOT is_due) AS later
FROM (
    SELECT {{is_due}} AS is_due
    FROM {delayed} d
    WHERE d.{id} = ANY(%(keys)s::uuid[])
) AS unclaimed;

-- name: read_some_attempts
-- Returns `most` retry counters of the source, or all if there are fewer: then `read_attempts` is saved.
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM {attempts}
WHERE source = %(source)s
LIMIT %(most)s;

-- name: read_attempts
-- Returns the retry counters of claimed messages. Runs after the claim, as a statement of its own: its snapshot
-- must be newer than the claim's locks, or two sweeps could both count one failure.
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM {attempts}
WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: reserve
-- Reserves seconds of a limit after reserved ones, and returns after how many seconds they begin. Waits for others
-- that reserve. More than a hundred reservations, one for each process, are from before the clock was set back.
INSERT INTO {limits} AS l (source, pattern, free_at)
VALUES (
    %(source)s, %(pattern)s, clock_timestamp() + %(seconds)s::float8 * interval '1 second'
)
ON CONFLICT (source, pattern) DO UPDATE SET
    free_at = greatest(
        clock_timestamp(),
        least(l.free_at, clock_timestamp() + greatest(10, 100 * %(seconds)s::float8) * interval '1 second')
    ) + %(seconds)s::float8 * interval '1 second'
RETURNING greatest(
    0, extract(epoch FROM free_at - clock_timestamp())::float8 - %(seconds)s::float8
) AS wait_seconds;

-- name: set_lock_wait
-- Sets how long this transaction waits for a lock; returns the value before and the new one.
SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', %(wait)s, true) AS after;

-- name: lock_sweep_counters
-- Returns how many messages the sweep has exhausted. Locks the sweep's row until this transaction ends, so that
-- its slices count one after another.
SELECT exhausted FROM {sweeps} WHERE sweep_id = %(sweep_id)s FOR NO KEY UPDATE;

-- name: journal_exhausted
-- Journals messages that are out of attempts, whole: headers and bodies come from their rows, whose locks this
-- transaction holds.
INSERT INTO {journal} (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due,
    dispatched_at, attempts, first_failed_at, error_class, error_text, stack, headers, body
)
SELECT %(sweep_id)s, %(slice)s, 'exhausted', d.{id}, e.message_id, e.message_type, e.destination, e.queue,
       -- One after the other: an interval is multiplied in floating point, exact for each, not for their sum.
       timestamptz 'epoch' + (e.instant_us / 1000000) * interval '1 second'
           + mod(e.instant_us, 1000000) * interval '1 microsecond',
       w.dispatched_at, e.attempts,
       coalesce(a.first_failed_at, w.dispatched_at), e.error_class, e.error_text, e.stack,
       d.{headers}, d.{body}
FROM unnest(
    %(message_key)s::uuid[], %(due_us)s::bigint[], %(message_id)s::text[], %(message_type)s::text[],
    %(destination)s::text[], %(queue)s::text[], %(attempts)s::integer[], %(error_class)s::text[],
    %(error_text)s::text[], %(stack)s::text[]
) AS e (
    message_key, instant_us, message_id, message_type, destination, queue, attempts, error_class, error_text,
    stack
)
CROSS JOIN (
    SELECT timestamptz 'epoch' + %(dispatched_us)s::bigint * interval '1 microsecond' AS dispatched_at
) w
JOIN {delayed} d ON d.{id} = e.message_key
LEFT JOIN {attempts} a ON a.source = %(source)s AND a.message_key = e.message_key;

-- name: remove
-- Removes claimed messages, whose locks this transaction holds.
DELETE FROM {delayed} WHERE {id} = ANY(%(keys)s::uuid[]);

-- name: clear_attempts
-- Deletes the retry counters of messages that leave the store, whose locks this transaction holds.
DELETE FROM {attempts} WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: raise_attempts
-- Counts one failure for each of these messages, whose locks this transaction holds.
INSERT INTO {attempts} AS counted (
    source, message_key, message_id, destination, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
)
SELECT %(source)s, f.message_key, f.message_id, f.destination, 1,
       statement_timestamp(), statement_timestamp(),
       statement_timestamp() + make_interval(secs => f.retry_seconds), f.error_class, f.error_text
FROM unnest(
    %(message_key)s::uuid[], %(message_id)s::text[], %(destination)s::text[],
    %(retry_seconds)s::float8[], %(error_class)s::text[], %(error_text)s::text[]
) AS f (message_key, message_id, destination, retry_seconds, error_class, error_text)
ON CONFLICT (source, message_key) DO UPDATE SET
    attempts = counted.attempts + 1,
    destination = excluded.destination,
    last_failed_at = excluded.last_failed_at,
    next_attempt_at = excluded.next_attempt_at,
    error_class = excluded.error_class,
    error_text = excluded.error_text;

-- name: add_exhausted
-- Adds to the sweep's counts of exhausted messages and of messages over the limit.
UPDATE {sweeps} SET exhausted = exhausted + %(exhausted)s, over_limit = over_limit + %(over_limit)s
WHERE sweep_id = %(sweep_id)s;

-- name: journal_batch
-- Journals the results of a batch, in the batch's own transaction.
INSERT INTO {journal} (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    %(sweep_id)s, %(slice)s, 'batch', %(dispatched)s, %(failed)s, %(body_bytes)s,
    %(attempts_changed)s, %(lateness_ms)s::bigint[], %(outcomes)s
);

-- name: journal_slice
-- Journals the end of a slice: its account, why it was cut, the circuit breakers that opened, and the batches
-- that the store could not move.
INSERT INTO {journal} (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, "left", reason, breakers, error_text
) VALUES (
    %(sweep_id)s, %(slice)s, 'slice', %(given)s, %(claimed)s, %(skipped)s, %(gone)s, %(later)s, %(held)s, %(left)s,
    %(reason)s, %(breakers)s, %(careful_batches)s
);

-- name: fetch_next_due
-- Returns and locks the eligible message that has been due longest; skips rows that others hold.
SELECT d.{id}::text AS message_key, {{readable: d.{headers}}} AS headers, d.{body} AS body, {{readable: {destination}}} AS destination,
       {{due_and_instant}}
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc}
  AND {{not_in_back_off: clock_timestamp()}}
ORDER BY d.{due}
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;

-- name: store_message
-- Stores a message until an instant, as the transport does, and returns its key. The cast to timestamptz
-- depends on the session's zone, so this must run in the writers'.
INSERT INTO {delayed} (headers, body, due)
VALUES (%(headers)s, %(body)s, timestamptz (%(due)s::timestamptz AT TIME ZONE 'UTC'))
RETURNING id::text AS message_key;

-- name: store_timeout
-- Stores a timeout until an instant, as SQL persistence does: its Time is the clock time in UTC.
INSERT INTO {delayed} (
    "Id", "Destination", "SagaId", "State", "Time", "Headers", "PersistenceVersion"
)
VALUES (
    %(message_key)s::uuid, %(destination)s, %(saga_id)s::uuid, %(body)s,
    %(due)s::timestamptz AT TIME ZONE 'UTC', %(headers)s, %(version)s
);

-- name: send_later
-- Stores a message until a delay has passed, as the transport does. The cast to timestamptz and whole days
-- depend on the session's zone, so this must run in the writers'.
INSERT INTO {delayed} (headers, body, due)
VALUES (
    %(headers)s, %(body)s,
    timestamptz (now() AT TIME ZONE 'UTC') + make_interval(
        days => %(days)s, hours => %(hours)s, mins => %(minutes)s,
        secs => %(seconds)s + %(milliseconds)s / 1000.0
    )
);
