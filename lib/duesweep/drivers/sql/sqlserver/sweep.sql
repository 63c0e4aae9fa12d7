-- Sweep: its life from open to closed, and how it is settled, in that order; an operator's command has a row in
-- the same table. A sealed sweep is final, so the pieces in which it is settled are the same each time.
-- A thousand rows at a time are fewer than make SQL Server lock the whole table.
--
-- Fragments of other files: get_lock (batch.sql).

-- name: take_lease
-- Takes a lease, unless a holder other than @holder and @other has it. No row: it is not taken.
DECLARE @Now datetime2(7) = SYSUTCDATETIME();
DECLARE @Until datetime2(7) = DATEADD(millisecond, CONVERT(int, @lease_ms), @Now);
UPDATE {leases} WITH (UPDLOCK, HOLDLOCK)
SET holder = @holder, process = @process, mark = @mark, taken_at = @Now, until_at = @Until
WHERE name = @name AND (until_at <= @Now OR holder IN (@holder, @other));
INSERT INTO {leases} (name, holder, process, mark, taken_at, until_at)
SELECT @name, @holder, @process, @mark, @Now, @Until
WHERE NOT EXISTS (SELECT 1 FROM {leases} l WITH (UPDLOCK, HOLDLOCK) WHERE l.name = @name);
SELECT 1 AS taken FROM {leases} l WHERE l.name = @name AND l.holder = @holder;

-- name: renew_leases
-- Renews the leases of a holder, also ones that are over and that no other holder has taken.
UPDATE {leases} SET until_at = DATEADD(millisecond, CONVERT(int, @lease_ms), SYSUTCDATETIME())
WHERE holder = @holder;

-- name: read_lease
-- Returns who has a lease. No row: it is free.
SELECT LOWER(CONVERT(varchar(36), l.holder)) AS holder, l.process, l.mark, l.taken_at
FROM {leases} l WITH (NOLOCK)
WHERE l.name = @name AND l.until_at > SYSUTCDATETIME();

-- name: give_lease_back
-- Ends a lease of a holder, and removes ones that were over a day ago: of sessions that were lost.
DELETE FROM {leases}
WHERE name = @name AND holder = @holder OR until_at < DATEADD(day, -1, SYSUTCDATETIME());

-- name: unsettled_sweeps
-- Returns the sweeps and commands of a source that are not settled, oldest first, with their leases; NULL: none.
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.started_at,
       CASE WHEN s.closed_at IS NULL THEN 0 ELSE 1 END AS is_closed, s.sealed_at, s.command,
       LOWER(CONVERT(varchar(36), l.holder)) AS holder, l.mark
FROM {sweeps} s
LEFT JOIN {leases} l WITH (NOLOCK)
    ON l.name = CONCAT(N'sweep ', LOWER(CONVERT(varchar(36), s.sweep_id))) COLLATE DATABASE_DEFAULT
    AND l.until_at > SYSUTCDATETIME()
WHERE s.source = @source
ORDER BY s.started_at;

-- name: measure_unsettled
-- Returns how many messages, bytes, sweeps and commands the journal holds of a source. Reads the lengths of
-- bodies, not the bodies.
SELECT COALESCE(SUM(held.messages), 0) AS messages, COALESCE(SUM(held.bytes), 0) AS bytes,
       COUNT(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN (
    SELECT j.sweep_id,
           CONVERT(bigint, COALESCE(j.dispatched, 0)) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END AS messages,
           CONVERT(bigint, COALESCE(DATALENGTH(j.outcomes), 0)) + COALESCE(DATALENGTH(j.body), 0)
               + COALESCE(DATALENGTH(j.headers_text), 0) AS bytes
    FROM {journal} j
    UNION ALL
    SELECT c.sweep_id, CONVERT(bigint, 1),
           CONVERT(bigint, COALESCE(DATALENGTH(c.body), 0)) + COALESCE(DATALENGTH(c.headers_text), 0)
    FROM {changes} c
) held ON held.sweep_id = s.sweep_id
WHERE s.source = @source;

-- name: find_gone_attempts
-- Returns whether there are retry counters of messages that have left the store or have another Due. Looks by
-- Due, because no other column of the transport's table is indexed. Waits for no batch: who prunes looks again.
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM {attempts} a WITH (NOLOCK)
    WHERE a.source = @source AND NOT EXISTS (
        SELECT 1 FROM {delayed} d WITH (NOLOCK)
        WHERE d.{due} = CAST(a.due_at AS datetime) AND d.{key} = CONVERT({key_type}, a.message_key){collate}
      )
) THEN 1 ELSE 0 END AS found;

-- name: follow_rescheduled
-- Updates the Due in the retry counters of messages whose Due has changed. Reads the whole delayed table, so it
-- runs only if `find_gone_attempts` found something.
UPDATE a
SET due_at = d.{due}
FROM {attempts} a
JOIN {delayed} d WITH (READPAST, READCOMMITTEDLOCK)
  ON d.{key} = CONVERT({key_type}, a.message_key){collate}
WHERE a.source = @source AND (a.due_at IS NULL OR a.due_at <> d.{due});

-- name: prune_attempts
-- Deletes the retry counters of messages that have left the store, at most 1,000 at a time; skips counters that
-- others hold.
DELETE TOP (1000) FROM {attempts} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE source = @source
  AND NOT EXISTS (
    SELECT 1 FROM {delayed} d
    WHERE d.{due} = CAST(due_at AS datetime) AND d.{key} = CONVERT({key_type}, message_key){collate}
  );

-- name: open_sweep
-- Opens a sweep under a new id.
INSERT INTO {sweeps} (sweep_id, source, horizon, engine, attempts_changed)
VALUES (@sweep_id, @source, CONVERT(datetime2(7), @horizon, 121), @engine, @attempts_changed);

-- name: open_command
-- Opens an operator's command. Its row is the fence, as a sweep's is.
INSERT INTO {sweeps} (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (@sweep_id, @source, CONVERT(datetime2(7), @horizon, 121), @command, @given_by, @given_reason);

-- name: set_planned
-- Stores how many messages each slice was planned with, and by which horizon.
UPDATE {sweeps} SET planned = @planned, horizon = CONVERT(datetime2(7), @horizon, 121)
WHERE sweep_id = @sweep_id AND closed_at IS NULL;

-- name: stop_sweep
-- Lets an open sweep stop after these milliseconds, unless it stops earlier. Waits for batches that count
-- in its row.
UPDATE {sweeps}
SET stop_at = DATEADD(millisecond, CONVERT(int, @after_ms), SYSUTCDATETIME())
WHERE sweep_id = @sweep_id AND closed_at IS NULL
  AND (stop_at IS NULL OR stop_at > DATEADD(millisecond, CONVERT(int, @after_ms), SYSUTCDATETIME()));

-- name: progress
-- Returns the results of a sweep's batches so far.
SELECT COUNT_BIG(CASE WHEN j.kind = 'batch' THEN 1 END) AS batches,
       COALESCE(SUM(CONVERT(bigint, j.dispatched)), 0) AS dispatched,
       COALESCE(SUM(CONVERT(bigint, j.failed)), 0)
           + COUNT_BIG(CASE WHEN j.kind = 'exhausted' THEN 1 END) AS failed
FROM {journal} j WITH (READPAST, READCOMMITTEDLOCK)
WHERE j.sweep_id = @sweep_id;

-- fragment: are_over
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS are_over
FROM {sweeps} s
WHERE s.sweep_id = @sweep_id AND s.closed_at IS NULL;

-- name: await_batches
-- Returns the sweep if it is still open. Waits up to 25 s for batches in flight (afterwards they are not over), and
-- holds the sweep's lock alone until this transaction ends, so that no other can begin.
{{get_lock: Exclusive; Transaction; 25000}}
{{are_over}}

-- name: are_batches_over
-- Returns and locks what `await_batches` does, but waits for no batch.
{{get_lock: Exclusive; Transaction; 0}}
{{are_over}}

-- name: close_sweep
-- Closes a sweep that `await_batches` has locked. No batch can commit to it any more.
UPDATE {sweeps}
SET closed_at = SYSUTCDATETIME(), abandoned = @abandoned, remaining = @remaining, reason = @reason
WHERE sweep_id = @sweep_id;

-- name: seal
-- Seals a closed sweep: stores when it was first settled.
UPDATE {sweeps}
SET sealed_at = SYSUTCDATETIME()
WHERE sweep_id = @sweep_id AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: read_sweep
-- Returns how a closed sweep was planned and closed.
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM {sweeps}
WHERE sweep_id = @sweep_id;

-- name: read_command
-- Returns a command's kind, and whether it changed retry counters. No row: it is a sweep.
SELECT s.command, s.given_by, s.given_reason, CASE WHEN EXISTS (
    SELECT 1 FROM {changes} c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) THEN 1 ELSE 0 END AS attempts_changed
FROM {sweeps} s
WHERE s.sweep_id = @sweep_id AND s.command IS NOT NULL;

-- name: total_batches
-- Returns the results of a sweep's batches, one row for each slice.
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
-- Returns the ends of a sweep's slices, oldest first. A slice whose task ran twice can have two.
SELECT slice, given, claimed, skipped, gone, later, held, [left], reason, breakers,
       error_text AS careful_batches
FROM {journal}
WHERE sweep_id = @sweep_id AND kind = 'slice'
ORDER BY id;

-- name: lateness
-- Returns the packed lateness of each batch of a sealed sweep: the server has no aggregate for percentiles.
SELECT j.lateness_ms
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'batch' AND j.outcomes IS NOT NULL
ORDER BY j.id;

-- name: failure_reasons
-- Returns why messages of a closed sweep failed: each reason, how often, and a destination, the most frequent
-- first. Columns hold rounded milliseconds, so the sweep's span is widened by 1 ms at both ends.
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
-- Returns the next batches of a sealed sweep that delivered something, with about `messages` messages.
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

-- fragment: pieces
SELECT MIN(m.id) AS first_id, MAX(m.id) AS last_id
FROM (
    SELECT s.id,
           (SUM(s.bytes) OVER (ORDER BY s.id ROWS UNBOUNDED PRECEDING) - s.bytes) / @piece_bytes AS piece
    FROM (
        -- The rest of a row takes about 1 kB.
        $1
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: exhausted_pieces
-- Returns the pieces in which a sealed sweep's exhausted messages are settled, of about `piece_bytes`: the
-- first and the last id of each.
{{pieces
    SELECT j.id,
           CONVERT(bigint, 1000 + COALESCE(DATALENGTH(j.headers_text), 0)
               + COALESCE(DATALENGTH(j.headers), 0) + COALESCE(DATALENGTH(j.body), 0)
               + COALESCE(DATALENGTH(j.error_text), 0) + COALESCE(DATALENGTH(j.stack), 0)) AS bytes
    FROM {journal} j
    WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted'
}}

-- name: changes_pieces
-- Returns the pieces in which a sealed command's changes are settled, as `exhausted_pieces` does.
{{pieces
    SELECT c.id,
           CONVERT(bigint, 1000 + COALESCE(DATALENGTH(c.headers_text), 0)
               + COALESCE(DATALENGTH(c.headers), 0) + COALESCE(DATALENGTH(c.body), 0)) AS bytes
    FROM {changes} c
    WHERE c.sweep_id = @sweep_id
}}

-- name: read_exhausted
-- Returns a piece of the messages that a sealed sweep exhausted. Times are microseconds since 1970-01-01
-- UTC, so that no session's time zone changes them.
SELECT j.id, LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id, j.message_key, j.message_id,
       j.message_type, j.destination, j.queue, j.due_us AS due, j.dispatched_us AS dispatched_at,
       (j.dispatched_us - j.due_us) / 1000 AS lateness_ms, j.attempts,
       CONVERT(bigint, COALESCE(DATALENGTH(j.body), 0)) AS body_bytes,
       j.first_failed_us AS first_failed_at, j.dispatched_us AS last_failed_at, j.error_class, j.error_text, j.stack,
       j.headers, j.headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted' AND j.id BETWEEN @first_id AND @last_id
ORDER BY j.id;

-- name: read_changes
-- Returns a piece of a sealed command's changes, with times as in `read_exhausted`.
SELECT c.id, LOWER(CONVERT(varchar(36), c.sweep_id)) AS sweep_id, s.command, c.change,
       c.changed_us AS changed_at, s.given_by, s.given_reason AS reason, c.message_key, c.message_id,
       c.message_type, c.destination, c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue,
       c.[of], c.new_key, c.attempts, c.headers, c.headers_text, c.body, c.body_bytes
FROM {changes} c
JOIN {sweeps} s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = @sweep_id AND c.id BETWEEN @first_id AND @last_id
ORDER BY c.id;

-- name: read_retries
-- Returns the next retry counters of a source, `most` of them after a key (NULL: the first), with times as in
-- `read_exhausted`.
SELECT TOP (@most) a.message_key, a.message_id, a.destination, a.attempts,
       DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at) AS first_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.last_failed_at) AS last_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.next_attempt_at) AS next_attempt_at,
       a.error_class, a.error_text
FROM {attempts} a
WHERE a.source = @source AND (@after IS NULL OR a.message_key > @after)
ORDER BY a.message_key;

-- name: delete_settled
-- Deletes journal rows of a settled sweep, at most 1,000 at a time.
DELETE TOP (1000) FROM {journal} WHERE sweep_id = @sweep_id;

-- name: delete_changes
-- Deletes changes of a settled command, at most 1,000 at a time.
DELETE TOP (1000) FROM {changes} WHERE sweep_id = @sweep_id;

-- name: delete_sweep
-- Deletes a settled sweep, after its journal rows, and its lease, even if another holder has it.
DELETE FROM {leases} WHERE name = @lease;
DELETE FROM {sweeps} WHERE sweep_id = @sweep_id;
