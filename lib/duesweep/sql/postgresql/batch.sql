-- Batch: what one transaction of a task does, in its order: fence, claim, finish. The last statement
-- ends a slice.

-- name: fence
-- Returns whether the sweep is still open, and the server's time in microseconds since 1970-01-01
-- UTC; holds it open until this transaction ends (closing takes FOR UPDATE). Waits for nobody but a
-- closer.
SELECT closed_at IS NULL AS is_open,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS server_us
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s
FOR KEY SHARE;

-- name: claim
-- Returns the messages among the keys that are (still) there and due, locked; skips what others hold.
-- With a zone, also the instant that Due means: what its clock shows at Due is UTC's reading then.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM d.{due}) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.{due}) AND %(zone)s::text IS NOT NULL THEN
           (extract(epoch FROM (d.{due} AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC') * 1000000)::bigint
       END AS instant_us
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]) AND d.{due} < %(horizon)s::timestamptz{utc}
FOR UPDATE OF d SKIP LOCKED;

-- name: explain_unclaimed
-- Returns why keys led to no message: `skipped` are there and due, so that somebody else holds them;
-- `later` are there and not due any more. A statement of its own, after the claim. No locks.
SELECT count(*) FILTER (WHERE is_due) AS skipped, count(*) FILTER (WHERE NOT is_due) AS later
FROM (
    SELECT coalesce(d.{due} < %(horizon)s::timestamptz{utc}, false) AS is_due
    FROM {delayed} d
    WHERE d.{id} = ANY(%(keys)s::uuid[])
) AS unclaimed;

-- name: read_attempts
-- Returns the retry counters of claimed messages. A statement of its own, after the claim: its
-- snapshot must be younger than the locks. No locks.
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM {attempts}
WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: set_lock_wait
-- Returns how long this transaction waited for a lock before, and sets how long it does from now on.
SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', %(wait)s, true) AS after;

-- name: lock_sweep_counters
-- Returns how many messages the sweep has exhausted; locked, so that its slices count one by one.
SELECT exhausted FROM {sweeps} WHERE sweep_id = %(sweep_id)s FOR NO KEY UPDATE;

-- name: journal_exhausted
-- Journals messages out of attempts whole, straight from their (locked) rows.
INSERT INTO {journal} (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due,
    dispatched_at, attempts, first_failed_at, error_class, error_text, stack, headers, body
)
SELECT %(sweep_id)s, %(slice)s, 'exhausted', d.{id}, e.message_id, e.message_type, e.destination, e.queue,
       CASE WHEN isfinite(d.{due}) THEN d.{due}{utc} - %(clock_shift)s END, %(dispatched_at)s, e.attempts,
       coalesce(a.first_failed_at, %(dispatched_at)s), e.error_class, e.error_text, e.stack,
       d.{headers}, d.{body}
FROM unnest(
    %(keys)s::uuid[], %(message_ids)s::text[], %(message_types)s::text[], %(destinations)s::text[],
    %(queues)s::text[], %(attempts)s::integer[], %(error_classes)s::text[], %(error_texts)s::text[],
    %(stacks)s::text[]
) AS e (message_key, message_id, message_type, destination, queue, attempts, error_class, error_text, stack)
JOIN {delayed} d ON d.{id} = e.message_key
LEFT JOIN {attempts} a ON a.source = %(source)s AND a.message_key = e.message_key;

-- name: remove
-- Removes claimed messages; their locks are held.
DELETE FROM {delayed} WHERE {id} = ANY(%(keys)s::uuid[]);

-- name: clear_attempts
-- Drops the retry counters of messages that leave; the messages' locks are held.
DELETE FROM {attempts} WHERE source = %(source)s AND message_key = ANY(%(keys)s::uuid[]);

-- name: raise_attempts
-- Counts a failure for each of these messages; the messages' locks are held.
INSERT INTO {attempts} AS counted (
    source, message_key, message_id, destination, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
)
SELECT %(source)s, f.message_key, f.message_id, f.destination, 1,
       statement_timestamp(), statement_timestamp(),
       statement_timestamp() + make_interval(secs => f.retry_seconds), f.error_class, f.error_text
FROM unnest(
    %(keys)s::uuid[], %(message_ids)s::text[], %(destinations)s::text[],
    %(retry_seconds)s::float8[], %(error_classes)s::text[], %(error_texts)s::text[]
) AS f (message_key, message_id, destination, retry_seconds, error_class, error_text)
ON CONFLICT (source, message_key) DO UPDATE SET
    attempts = counted.attempts + 1,
    destination = excluded.destination,
    last_failed_at = excluded.last_failed_at,
    next_attempt_at = excluded.next_attempt_at,
    error_class = excluded.error_class,
    error_text = excluded.error_text;

-- name: add_exhausted
-- Adds to the sweep's counts of messages exhausted, and over the limit by the limit; the row is locked.
UPDATE {sweeps} SET exhausted = exhausted + %(exhausted)s, over_limit = over_limit + %(over_limit)s
WHERE sweep_id = %(sweep_id)s;

-- name: journal_batch
-- Journals what a batch did, in the batch's own transaction.
INSERT INTO {journal} (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    %(sweep_id)s, %(slice)s, 'batch', %(dispatched)s, %(failed)s, %(body_bytes)s,
    %(attempts_changed)s, %(lateness_ms)s::bigint[], %(outcomes)s
);

-- name: journal_slice
-- Journals the end of a slice: its account, and why it was cut, if it was.
INSERT INTO {journal} (sweep_id, slice, kind, given, claimed, skipped, gone, later, "left", reason)
VALUES (
    %(sweep_id)s, %(slice)s, 'slice', %(given)s, %(claimed)s, %(skipped)s, %(gone)s, %(later)s, %(left)s,
    %(reason)s
);
