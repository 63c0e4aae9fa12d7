-- Sweep: its life from open to closed, and how it is settled, in that order; an operator's command has a row in
-- the same table. A sealed sweep is final, so the pieces in which it is settled are the same each time.
--
-- Fragments of other files: micros, readable (batch.sql).

-- fragment: quickly
-- A lease that a crash of the server loses is over anyway, so its commit does not wait for the disk.
(SELECT set_config('synchronous_commit', 'off', true)) AS quick (setting)

-- fragment: lease_end
clock_timestamp() + %(lease_ms)s::float8 * interval '1 millisecond'

-- name: take_lease
-- Takes a lease, unless a holder other than `holder` and `other` has it. No row: it is not taken.
INSERT INTO {leases} AS l (name, holder, process, mark, taken_at, until_at)
SELECT %(name)s, %(holder)s, %(process)s, %(mark)s, clock_timestamp(), {{lease_end}}
FROM {{quickly}}
WHERE quick.setting = 'off'
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, process = excluded.process, mark = excluded.mark,
    taken_at = excluded.taken_at, until_at = excluded.until_at
WHERE l.until_at <= clock_timestamp() OR l.holder IN (%(holder)s, %(other)s)
RETURNING true AS taken;

-- name: renew_leases
-- Renews the leases of a holder, also ones that are over and that no other holder has taken.
UPDATE {leases} SET until_at = {{lease_end}}
FROM {{quickly}}
WHERE holder = %(holder)s AND quick.setting = 'off';

-- name: read_lease
-- Returns who has a lease. No row: it is free.
SELECT holder, process, mark, taken_at FROM {leases} WHERE name = %(name)s AND until_at > clock_timestamp();

-- name: give_lease_back
-- Ends a lease of a holder, and removes ones that were over a day ago: of sessions that were lost.
DELETE FROM {leases} USING {{quickly}}
WHERE quick.setting = 'off'
  AND (name = %(name)s AND holder = %(holder)s OR until_at < clock_timestamp() - interval '1 day');

-- name: unsettled_sweeps
-- Returns the sweeps and commands of a source that are not settled, oldest first, with their leases; NULL: none.
SELECT s.sweep_id, s.started_at, s.closed_at IS NOT NULL AS is_closed, s.sealed_at, s.command, l.holder, l.mark
FROM {sweeps} s
LEFT JOIN {leases} l ON l.name = 'sweep ' || s.sweep_id AND l.until_at > clock_timestamp()
WHERE s.source = %(source)s
ORDER BY s.started_at;

-- name: measure_unsettled
-- Returns how many messages, bytes, sweeps and commands the journal holds of a source. Reads the lengths of
-- bodies, not the bodies.
SELECT (coalesce(sum(held.messages), 0))::bigint AS messages, (coalesce(sum(held.bytes), 0))::bigint AS bytes,
       count(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN LATERAL (
    SELECT coalesce(j.dispatched, 0) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END AS messages,
           coalesce(octet_length(j.outcomes), 0)::bigint + coalesce(octet_length(j.body), 0)
               + coalesce(octet_length(j.headers), 0) AS bytes
    FROM {journal} j
    WHERE j.sweep_id = s.sweep_id
    UNION ALL
    SELECT 1, coalesce(octet_length(c.body), 0)::bigint + coalesce(octet_length(c.headers), 0)
    FROM {changes} c
    WHERE c.sweep_id = s.sweep_id
) held ON true
WHERE s.source = %(source)s;

-- name: find_gone_attempts
-- Returns whether there are retry counters of messages that have left the store.
SELECT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = a.message_key)
) AS found;

-- name: prune_attempts
-- Deletes the retry counters of messages that have left the store; skips locked ones.
DELETE FROM {attempts} a
USING (
    SELECT g.source, g.message_key
    FROM {attempts} g
    WHERE g.source = %(source)s AND NOT EXISTS (SELECT FROM {delayed} d WHERE d.{id} = g.message_key)
    FOR UPDATE OF g SKIP LOCKED
) gone
WHERE a.source = gone.source AND a.message_key = gone.message_key;

-- name: open_sweep
-- Opens a sweep. Its row is the fence: every batch of the sweep locks it.
INSERT INTO {sweeps} (sweep_id, source, horizon, engine, attempts_changed)
VALUES (%(sweep_id)s, %(source)s, %(horizon)s, %(engine)s, %(attempts_changed)s);

-- name: open_command
-- Opens an operator's command. Its row is the fence, as a sweep's is.
INSERT INTO {sweeps} (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (
    %(sweep_id)s, %(source)s, %(horizon)s, %(command)s, %(given_by)s, %(given_reason)s
);

-- name: set_planned
-- Stores how many messages each slice was planned with, and by which horizon.
UPDATE {sweeps} SET planned = %(planned)s, horizon = %(horizon)s
WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL;

-- name: stop_sweep
-- Lets an open sweep stop after these milliseconds, unless it stops earlier. Waits for batches that count
-- in its row.
UPDATE {sweeps}
SET stop_at = least(stop_at, clock_timestamp() + %(after_ms)s::float8 * interval '1 millisecond')
WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL;

-- name: progress
-- Returns the results of a sweep's batches so far.
SELECT count(*) FILTER (WHERE kind = 'batch') AS batches,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint + count(*) FILTER (WHERE kind = 'exhausted') AS failed
FROM {journal}
WHERE sweep_id = %(sweep_id)s;

-- name: await_batches
-- Returns the sweep if it is still open. Waits for batches in flight, then locks the sweep's row until this
-- transaction ends, so that no other can begin.
SELECT true AS are_over FROM {sweeps} WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL FOR UPDATE;

-- name: are_batches_over
-- Returns the sweep if it is still open and has no batch in flight. Waits for none; then locks the sweep's row
-- as `await_batches` does.
SELECT true AS are_over FROM {sweeps} WHERE sweep_id = %(sweep_id)s AND closed_at IS NULL FOR UPDATE SKIP LOCKED;

-- name: close_sweep
-- Closes a sweep that `await_batches` has locked. No batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = clock_timestamp(), abandoned = %(abandoned)s, remaining = %(remaining)s, reason = %(reason)s
WHERE sweep_id = %(sweep_id)s;

-- name: seal
-- Seals a closed sweep: stores when it was first settled.
UPDATE {sweeps}
SET sealed_at = clock_timestamp()
WHERE sweep_id = %(sweep_id)s AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: read_sweep
-- Returns how a closed sweep was planned and closed.
SELECT sweep_id, source, started_at, closed_at, horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM {sweeps}
WHERE sweep_id = %(sweep_id)s;

-- name: read_command
-- Returns a command's kind, and whether it changed retry counters. No row: it is a sweep.
SELECT s.command, s.given_by, s.given_reason, EXISTS (
    SELECT FROM {changes} c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) AS attempts_changed
FROM {sweeps} s
WHERE s.sweep_id = %(sweep_id)s AND s.command IS NOT NULL;

-- name: total_batches
-- Returns the results of a sweep's batches, one row for each slice.
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
-- Returns the ends of a sweep's slices, oldest first. A slice whose task ran twice can have two.
SELECT slice, given, claimed, skipped, gone, later, held, "left", reason, breakers,
       error_text AS careful_batches
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind = 'slice'
ORDER BY id;

-- name: lateness
-- Returns percentiles of the milliseconds from Due to dispatch in a sealed sweep.
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY l.ms) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY l.ms) AS p95,
       max(l.ms) AS longest
FROM {journal} j CROSS JOIN LATERAL unnest(j.lateness_ms) AS l (ms)
WHERE j.sweep_id = %(sweep_id)s;

-- name: failure_reasons
-- Returns why messages of a closed sweep failed: each reason with its number of messages and one of their
-- destinations, the most frequent first.
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
-- Returns the next batches of a sealed sweep that delivered something, with about `messages` messages.
SELECT id, outcomes
FROM {journal}
WHERE sweep_id = %(sweep_id)s AND kind = 'batch' AND outcomes IS NOT NULL AND id > %(after_id)s
ORDER BY id
LIMIT (
    SELECT greatest(1, %(messages)s / greatest(1, max(dispatched)))
    FROM {journal}
    WHERE sweep_id = %(sweep_id)s AND kind = 'batch'
);

-- fragment: pieces
SELECT min(m.id) AS first_id, max(m.id) AS last_id
FROM (
    SELECT s.id, div(sum(s.bytes) OVER (ORDER BY s.id) - s.bytes, %(piece_bytes)s::bigint) AS piece
    FROM (
        -- Headers are written twice, and the rest of a row takes about 1 kB.
        $1
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: exhausted_pieces
-- Returns the pieces in which a sealed sweep's exhausted messages are settled, of about `piece_bytes`: the
-- first and the last id of each.
{{pieces
    SELECT j.id, 1000 + 2 * coalesce(octet_length(j.headers), 0)::bigint + coalesce(octet_length(j.body), 0)
               + coalesce(octet_length(j.error_text), 0) + coalesce(octet_length(j.stack), 0) AS bytes
    FROM {journal} j
    WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted'
}}

-- name: changes_pieces
-- Returns the pieces in which a sealed command's changes are settled, as `exhausted_pieces` does.
{{pieces
    SELECT c.id,
           1000 + 2 * coalesce(octet_length(c.headers), 0)::bigint + coalesce(octet_length(c.body), 0) AS bytes
    FROM {changes} c
    WHERE c.sweep_id = %(sweep_id)s
}}

-- name: read_exhausted
-- Returns a piece of the messages that a sealed sweep exhausted. Times are microseconds since 1970-01-01
-- UTC, so that no session's time zone changes them.
SELECT j.id, j.sweep_id::text AS sweep_id, j.message_key::text AS message_key, j.message_id,
       j.message_type, j.destination, j.queue,
       {{micros: j.due}} AS due,
       {{micros: j.dispatched_at}} AS dispatched_at,
       floor((extract(epoch FROM j.dispatched_at) - extract(epoch FROM j.due)) * 1000)::bigint AS lateness_ms,
       j.attempts, coalesce(octet_length(j.body), 0)::bigint AS body_bytes,
       {{micros: j.first_failed_at}} AS first_failed_at,
       {{micros: j.dispatched_at}} AS last_failed_at,
       j.error_class, j.error_text, j.stack, {{readable: j.headers}} AS headers,
       {{readable: j.headers}} AS headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted' AND j.id BETWEEN %(first_id)s AND %(last_id)s
ORDER BY j.id;

-- name: read_changes
-- Returns a piece of a sealed command's changes, with times as in `read_exhausted`.
SELECT c.id, c.sweep_id::text AS sweep_id, s.command, c.change, c.changed_us AS changed_at, s.given_by,
       s.given_reason AS reason, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue, c."of", c.new_key, c.attempts,
       {{readable: c.headers}} AS headers, {{readable: c.headers}} AS headers_text, c.body, c.body_bytes
FROM {changes} c
JOIN {sweeps} s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = %(sweep_id)s AND c.id BETWEEN %(first_id)s AND %(last_id)s
ORDER BY c.id;

-- name: read_retries
-- Returns the next retry counters of a source, `most` of them after a key (NULL: the first), with times as in
-- `read_exhausted`.
SELECT a.message_key::text AS message_key, message_id, destination, attempts,
       {{micros: first_failed_at}} AS first_failed_at,
       {{micros: last_failed_at}} AS last_failed_at,
       {{micros: next_attempt_at}} AS next_attempt_at,
       error_class, error_text
FROM {attempts} a
WHERE a.source = %(source)s AND (%(after)s::uuid IS NULL OR a.message_key > %(after)s::uuid)
ORDER BY a.message_key
LIMIT %(most)s;

-- name: delete_settled
-- Deletes journal rows of a settled sweep, at most 500 at a time.
DELETE FROM {journal}
WHERE id IN (SELECT id FROM {journal} WHERE sweep_id = %(sweep_id)s LIMIT 500);

-- name: delete_changes
-- Deletes changes of a settled command, at most 500 at a time.
DELETE FROM {changes}
WHERE id IN (SELECT id FROM {changes} WHERE sweep_id = %(sweep_id)s LIMIT 500);

-- name: delete_sweep
-- Deletes a settled sweep, after its journal rows, and its lease, even if another holder has it.
WITH ended AS (DELETE FROM {leases} WHERE name = %(lease)s)
DELETE FROM {sweeps} WHERE sweep_id = %(sweep_id)s;
