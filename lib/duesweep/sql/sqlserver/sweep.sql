-- Sweep: its life from open to closed, and how it is settled. In that order.

-- name: try_lock
-- Returns whether the session now holds this application lock; waits @wait_ms milliseconds for it.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Session',
    @LockTimeout = @wait_ms;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS locked;

-- name: unlock
-- Releases an application lock that the session holds.
EXEC sp_releaseapplock @Resource = @lock, @LockOwner = 'Session';

-- name: unsettled_sweeps
-- Returns the source's sweeps that are not settled, oldest first. No locks kept.
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id,
       CASE WHEN s.closed_at IS NULL THEN 0 ELSE 1 END AS is_closed, s.sealed_at
FROM {sweeps} s
WHERE s.source = @source
ORDER BY s.started_at;

-- name: measure_unsettled
-- Returns how many messages of a source the journal holds, their bytes there, and of how many sweeps.
-- Reads no blob. No locks kept.
SELECT COALESCE(SUM(CONVERT(bigint, COALESCE(j.dispatched, 0)) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)
           AS messages,
       COALESCE(SUM(CONVERT(bigint, COALESCE(DATALENGTH(j.outcomes), 0)) + COALESCE(DATALENGTH(j.body), 0)
           + COALESCE(DATALENGTH(j.headers_text), 0)), 0) AS bytes,
       COUNT(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN {journal} j ON j.sweep_id = s.sweep_id
WHERE s.source = @source;

-- name: find_gone_attempts
-- Returns whether there are retry counters of messages that are gone, or have another Due by now. By
-- Due, since no other column of the transport's table is indexed. Keeps no locks.
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM {attempts} a
    WHERE a.source = @source AND NOT EXISTS (
        SELECT 1 FROM {delayed} d
        WHERE d.{due} = a.due_at AND d.{key} = CONVERT({key_type}, a.message_key){collate}
      )
) THEN 1 ELSE 0 END AS found;

-- name: follow_rescheduled
-- Gives the retry counters of messages that have another Due by now that Due. Reads all of the delayed
-- table, so it is to be run only where `find_gone_attempts` found something.
UPDATE a
SET due_at = d.{due}
FROM {attempts} a
JOIN {delayed} d WITH (READPAST)
  ON d.{key} = CONVERT({key_type}, a.message_key){collate}
WHERE a.source = @source AND (a.due_at IS NULL OR a.due_at <> d.{due});

-- name: prune_attempts
-- Drops a bounded number of the retry counters of messages that are gone.
DELETE TOP (1000) FROM {attempts}
WHERE source = @source
  AND NOT EXISTS (
    SELECT 1 FROM {delayed} d
    WHERE d.{due} = due_at AND d.{key} = CONVERT({key_type}, message_key){collate}
  );

-- name: open_sweep
-- Opens a sweep under a new id.
INSERT INTO {sweeps} (sweep_id, source, horizon, attempts_changed)
VALUES (@sweep_id, @source, CONVERT(datetime2(7), @horizon, 121), @attempts_changed);

-- name: set_planned
-- Notes how many messages each slice was planned with, as a JSON array.
UPDATE {sweeps} SET planned = @planned WHERE sweep_id = @sweep_id AND closed_at IS NULL;

-- name: progress
-- Returns what the batches of a sweep have done so far. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(CASE WHEN j.kind = 'batch' THEN 1 END) AS batches,
       COALESCE(SUM(CONVERT(bigint, j.dispatched)), 0) AS dispatched,
       COALESCE(SUM(CONVERT(bigint, j.failed)), 0)
           + COUNT_BIG(CASE WHEN j.kind = 'exhausted' THEN 1 END) AS failed
FROM {journal} j WITH (READPAST)
WHERE j.sweep_id = @sweep_id;

-- name: await_batches
-- Returns the sweep if it is still open, locked against every batch until this transaction ends: waits
-- for those in flight; no row, too, where that takes too long.
DECLARE @Answer int;
EXEC @Answer = sp_getapplock @Resource = @lock, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 25000;
SELECT @Answer AS answer, CASE WHEN s.closed_at IS NULL THEN 1 ELSE 0 END AS is_open
FROM {sweeps} s
WHERE s.sweep_id = @sweep_id;

-- name: close_sweep
-- Closes a sweep that await_batches has locked; no batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = SYSUTCDATETIME(), abandoned = @abandoned, remaining = @remaining, reason = @reason
WHERE sweep_id = @sweep_id;

-- name: seal
-- Notes when a closed sweep was first settled.
UPDATE {sweeps}
SET sealed_at = SYSUTCDATETIME()
WHERE sweep_id = @sweep_id AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: read_sweep
-- Returns a closed sweep: how it was planned and closed. No locks kept.
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason
FROM {sweeps}
WHERE sweep_id = @sweep_id;

-- name: total_batches
-- Returns what the batches of a sweep did, a row a slice. No locks kept.
SELECT slice,
       SUM(CONVERT(bigint, COALESCE(dispatched, 0))) AS dispatched,
       SUM(CONVERT(bigint, COALESCE(failed, 0))) AS failed,
       SUM(CONVERT(bigint, CASE WHEN kind = 'exhausted' THEN 1 ELSE 0 END)) AS exhausted,
       SUM(COALESCE(body_bytes, 0)) AS bytes,
       MAX(CASE WHEN attempts_changed = 1 OR kind = 'exhausted' THEN 1 ELSE 0 END) AS attempts_changed
FROM {journal}
WHERE sweep_id = @sweep_id AND kind <> 'slice'
GROUP BY slice;

-- name: read_slice_ends
-- Returns the ends of a sweep's slices, oldest first: each run of a task that came to its end wrote one.
-- No locks kept.
SELECT slice, given, claimed, skipped, gone, later, [left], reason
FROM {journal}
WHERE sweep_id = @sweep_id AND kind = 'slice'
ORDER BY id;

-- name: lateness
-- Returns the packed lateness of each batch of a sealed sweep. No locks kept.
SELECT j.lateness_ms
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'batch' AND j.outcomes IS NOT NULL
ORDER BY j.id;

-- name: failure_reasons
-- Returns why messages of a closed sweep failed, the commonest reasons first, each with a destination.
-- No locks kept. The columns have milliseconds, rounded, so the sweep's span has one more at its ends.
SELECT TOP (CONVERT(int, @most)) f.reason, COUNT(*) AS messages, MIN(f.destination) AS destination
FROM (
    SELECT LEFT(j.error_text, 500) AS reason, LEFT(j.destination, 400) AS destination
    FROM {journal} j
    WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted'
    UNION ALL
    SELECT LEFT(a.error_text, 500), LEFT(a.destination, 400)
    FROM {sweeps} s
    JOIN {attempts} a ON a.source = s.source
        AND a.last_failed_at BETWEEN DATEADD(millisecond, -1, s.started_at) AND DATEADD(millisecond, 1, s.closed_at)
    WHERE s.sweep_id = @sweep_id
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason;

-- name: read_batches
-- Returns the next batches of a sealed sweep that delivered something, in the order of their ids:
-- about @messages messages. Nobody changes a sealed sweep, so its pieces are always the same. No
-- locks kept.
SELECT j.id, j.outcomes
FROM (
    SELECT b.id, b.outcomes, ROW_NUMBER() OVER (ORDER BY b.id) AS position
    FROM {journal} b
    WHERE b.sweep_id = @sweep_id AND b.kind = 'batch' AND b.outcomes IS NOT NULL AND b.id > @after_id
) j
CROSS JOIN (
    SELECT MAX(m.dispatched) AS longest
    FROM {journal} m
    WHERE m.sweep_id = @sweep_id AND m.kind = 'batch'
) l
WHERE j.position <= CASE WHEN l.longest > 0 AND @messages / l.longest > 1 THEN @messages / l.longest ELSE 1 END
ORDER BY j.id;

-- name: exhausted_extent
-- Returns how many messages a sealed sweep exhausted, and the longest one's size. No locks kept.
SELECT COUNT_BIG(*) AS rows,
       COALESCE(MAX(
           COALESCE(DATALENGTH(j.headers_text), 0) + COALESCE(DATALENGTH(j.headers), 0)
           + COALESCE(DATALENGTH(j.body), 0)
       ), 0) AS longest
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted';

-- name: read_exhausted
-- Returns the exhausted messages of a sealed sweep, for JDBC, as a subquery; {sweep_id} is a literal.
-- Times are microseconds since 1970-01-01 UTC: no session's time zone has a say. No locks kept.
SELECT j.id, LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id, j.message_key, j.message_id,
       j.message_type, j.destination, j.queue, j.due_us AS due, j.dispatched_us AS dispatched_at,
       (j.dispatched_us - j.due_us) / 1000 AS lateness_ms, j.attempts,
       CONVERT(bigint, COALESCE(DATALENGTH(j.body), 0)) AS body_bytes,
       j.first_failed_us AS first_failed_at, j.error_class, j.error_text, j.stack,
       j.headers, j.headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = CONVERT(uniqueidentifier, {sweep_id}) AND j.kind = 'exhausted'

-- name: read_retries
-- Returns the retry counters of a source, for JDBC, as a subquery; {source} is a literal. No locks
-- kept.
SELECT a.message_key, a.message_id, a.destination, a.attempts,
       DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at) AS first_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.last_failed_at) AS last_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.next_attempt_at) AS next_attempt_at,
       a.error_class, a.error_text
FROM {attempts} a
WHERE a.source = {source}

-- name: delete_settled
-- Deletes a bounded number of the journal rows of a settled sweep.
DELETE TOP (1000) FROM {journal} WHERE sweep_id = @sweep_id;

-- name: delete_sweep
-- Deletes a settled sweep, after its journal rows.
DELETE FROM {sweeps} WHERE sweep_id = @sweep_id;
