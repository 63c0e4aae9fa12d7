-- Sweep: its life from open to closed, and how it is settled. In that order.

-- name: try_lock
-- Returns whether the session now holds this advisory lock; never waits.
SELECT pg_try_advisory_lock(%(lock_key)s) AS locked;

-- name: unlock
-- Releases an advisory lock that the session holds.
SELECT pg_advisory_unlock(%(lock_key)s) AS unlocked;

-- name: unsettled_sweeps
-- Returns the source's sweeps that are not settled, oldest first. No locks.
SELECT sweep_id, closed_at IS NOT NULL AS is_closed, sealed_at
FROM {sweeps}
WHERE source = %(source)s
ORDER BY started_at;

-- name: measure_unsettled
-- Returns how many messages of a source the journal holds, their bytes there, and of how many sweeps.
-- Reads no blob. No locks.
SELECT coalesce(sum(coalesce(j.dispatched, 0) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)::bigint
           AS messages,
       coalesce(sum(coalesce(octet_length(j.outcomes), 0)::bigint + coalesce(octet_length(j.body), 0)
           + coalesce(octet_length(j.headers), 0)), 0)::bigint AS bytes,
       count(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN {journal} j ON j.sweep_id = s.sweep_id
WHERE s.source = %(source)s;

-- name: find_gone_attempts
-- Returns whether retry counters of messages that are gone are still kept. No locks.
SELECT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = a.message_key)
) AS found;

-- name: prune_attempts
-- Drops the retry counters of messages that are gone; skips what others hold.
DELETE FROM {attempts} a
USING (
    SELECT g.source, g.message_key
    FROM {attempts} g
    WHERE g.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = g.message_key)
    FOR UPDATE OF g SKIP LOCKED
) gone
WHERE a.source = gone.source AND a.message_key = gone.message_key;

-- name: open_sweep
-- Opens a sweep: its row is the fence that every batch holds.
INSERT INTO {sweeps} (sweep_id, source, horizon, attempts_changed)
VALUES (%(sweep_id)s, %(source)s, %(horizon)s, %(attempts_changed)s);

-- name: set_planned
-- Notes how many messages each slice was planned with.
UPDATE {sweeps} SET planned = %(planned)s WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL;

-- name: progress
-- Returns what the batches of a sweep have done so far. No locks.
SELECT count(*) FILTER (WHERE kind = 'batch') AS batches,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint + count(*) FILTER (WHERE kind = 'exhausted') AS failed
FROM {journal}
WHERE sweep_id = %(sweep_id)s;

-- name: await_batches
-- Returns the sweep if it is still open, locked against every batch: waits for those in flight.
SELECT sweep_id FROM {sweeps} WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL FOR UPDATE;

-- name: close_sweep
-- Closes a sweep that await_batches has locked; no batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = clock_timestamp(), abandoned = %(abandoned)s, remaining = %(remaining)s, reason = %(reason)s
WHERE sweep_id = %(sweep_id)s;

-- name: seal
-- Notes when a closed sweep was first settled.
UPDATE {sweeps}
SET sealed_at = clock_timestamp()
WHERE sweep_id = %(sweep_id)s AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: read_sweep
-- Returns a closed sweep: how it was planned and closed. No locks.
SELECT sweep_id, source, started_at, closed_at, horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s;

-- name: total_batches
-- Returns what the batches of a sweep did, a row a slice. No locks.
SELECT slice,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint AS failed,
       count(*) FILTER (WHERE kind = 'exhausted') AS exhausted,
       coalesce(sum(body_bytes), 0)::bigint AS bytes,
       coalesce(bool_or(attempts_changed OR kind = 'exhausted'), false) AS attempts_changed
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind <> 'slice'
GROUP BY slice;

-- name: read_slice_ends
-- Returns the ends of a sweep's slices, oldest first: each run of a task that came to its end wrote one.
-- No locks.
SELECT slice, given, claimed, skipped, gone, later, "left", reason
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind = 'slice'
ORDER BY id;

-- name: lateness
-- Returns percentiles of the milliseconds from Due to dispatch in a sealed sweep. No locks.
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY l.ms) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY l.ms) AS p95,
       max(l.ms) AS longest
FROM {journal} j CROSS JOIN LATERAL unnest(j.lateness_ms) AS l (ms)
WHERE j.sweep_id = %(sweep_id)s;

-- name: failure_reasons
-- Returns why messages of a closed sweep failed, the commonest reasons first, each with a destination.
-- No locks.
SELECT f.reason, count(*) AS messages, min(f.destination) AS destination
FROM (
    SELECT left(j.error_text, 500) AS reason, j.destination
    FROM {journal} j
    WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted'
    UNION ALL
    SELECT left(a.error_text, 500), a.destination
    FROM {sweeps} s
    JOIN {attempts} a ON a.source = s.source AND a.last_failed_at BETWEEN s.started_at AND s.closed_at
    WHERE s.sweep_id = %(sweep_id)s
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason
LIMIT %(most)s::integer;

-- name: read_batches
-- Returns the next batches of a sealed sweep that delivered something, in the order of their ids:
-- about %(messages)s messages. Nobody changes a sealed sweep, so its pieces are always the same. No
-- locks.
SELECT id, outcomes
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind = 'batch' AND outcomes IS NOT NULL AND id > %(after_id)s
ORDER BY id
LIMIT (
    SELECT greatest(1, %(messages)s / greatest(1, max(dispatched)))
    FROM {journal}
    WHERE sweep_id = %(sweep_id)s AND kind = 'batch'
);

-- name: exhausted_extent
-- Returns how many messages a sealed sweep exhausted, and the longest one's size. No locks.
SELECT count(*) AS rows,
       coalesce(max(coalesce(octet_length(j.headers), 0)::bigint + coalesce(octet_length(j.body), 0)), 0) AS longest
FROM {journal} j
WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted';

-- name: read_exhausted
-- Returns the exhausted messages of a sealed sweep, for JDBC, as a subquery; {sweep_id} is a
-- literal. Times are microseconds since 1970-01-01 UTC: no session's time zone has a say. No locks.
SELECT j.id, j.sweep_id::text AS sweep_id, j.message_key::text AS message_key, j.message_id,
       j.message_type, j.destination, j.queue,
       (extract(epoch FROM j.due) * 1000000)::bigint AS due,
       (extract(epoch FROM j.dispatched_at) * 1000000)::bigint AS dispatched_at,
       ((extract(epoch FROM j.dispatched_at) - extract(epoch FROM j.due)) * 1000)::bigint AS lateness_ms,
       j.attempts, coalesce(octet_length(j.body), 0)::bigint AS body_bytes,
       (extract(epoch FROM j.first_failed_at) * 1000000)::bigint AS first_failed_at,
       j.error_class, j.error_text, j.stack, j.headers, j.headers AS headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = {sweep_id}::uuid AND j.kind = 'exhausted'

-- name: read_retries
-- Returns the retry counters of a source, for JDBC, as a subquery; {source} is a literal. No locks.
SELECT message_key::text AS message_key, message_id, destination, attempts,
       (extract(epoch FROM first_failed_at) * 1000000)::bigint AS first_failed_at,
       (extract(epoch FROM last_failed_at) * 1000000)::bigint AS last_failed_at,
       (extract(epoch FROM next_attempt_at) * 1000000)::bigint AS next_attempt_at,
       error_class, error_text
FROM {attempts}
WHERE source = {source}

-- name: delete_settled
-- Deletes a bounded number of the journal rows of a settled sweep.
DELETE FROM {journal}
WHERE id IN (SELECT id FROM {journal} WHERE sweep_id = %(sweep_id)s LIMIT 500);

-- name: delete_sweep
-- Deletes a settled sweep, after its journal rows.
DELETE FROM {sweeps} WHERE sweep_id = %(sweep_id)s;
