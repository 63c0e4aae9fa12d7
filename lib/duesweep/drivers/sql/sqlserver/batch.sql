-- Batch: the statements of a task's transaction, in its order: fence, claim, finish, the end of a slice; and
-- statements for single messages. READPAST skips rows that others hold, here and in the other files; without
-- READCOMMITTEDLOCK it would read removed rows, if the database has row versions. `seek` is FORCESEEK if there is an
-- index on Due: else a join could read, and lock, the whole table. A Due of a list is cast
-- in a subquery with TOP: Babelfish uses no index for a value that is cast in the comparison.
--
-- Fragments of other files: due_and_instant, not_paused, tick, tick_text (plan.sql); without_counts (queue.sql).

-- fragment: get_lock
-- An application lock works under every isolation level.
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = @lock, @LockMode = '$1', @LockOwner = '$2',
    @LockTimeout = $3;

-- fragment: listed
-- The keys of `key_list`, as `@separator` separates them.
STRING_SPLIT(CONVERT(nvarchar(max), $1), CONVERT(nchar(1), @separator))

-- fragment: typed_keys
(
    SELECT CONVERT({key_type}, k.[value]){collate}
    FROM {{listed: @keys}} k
)

-- fragment: locked_rows
-- With their pages and index keys, 1,600 rows stay below the 5,000 locks at which SQL Server locks the whole table.
SELECT TOP (1600) {key_text} AS message_key, m.{due} AS due, m.Headers AS headers,
       m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK{seek})

-- fragment: back_off_of
SELECT 1 FROM {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = @source
  AND a.message_key = $1 COLLATE DATABASE_DEFAULT
  AND a.next_attempt_at > SYSUTCDATETIME()

-- fragment: sweep_now
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       CASE WHEN s.stop_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_stopping,
       CASE WHEN EXISTS (SELECT 1 FROM {pauses} p WITH (NOLOCK) WHERE p.source = s.source)
            THEN 1 ELSE 0 END AS has_pauses,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM {sweeps} s WITH (NOLOCK)
WHERE s.sweep_id = @sweep_id;

-- name: fence
-- Returns whether the sweep is open and is to stop, whether its source has pauses, and the time. Shares the sweep's
-- lock until this transaction ends; closing takes it alone. Waits for no slice that counts in the sweep's row.
{{get_lock: Shared; Transaction; 10000}}
{{sweep_now}}

-- name: look_at_sweep
-- Returns the same as `fence`, before a transaction. The sweep may be closed by the time when that begins.
DECLARE @Answer int = 0;
{{sweep_now}}

-- name: begin_at_once
-- Begins the transaction that the next statements of the same batch are: an error rolls it back and ends the batch.
SET XACT_ABORT ON;
BEGIN TRANSACTION;

-- name: fence_or_end
-- Returns whether the sweep is open. If it is not, this ends the batch and its transaction; else it shares
-- the sweep's lock until the transaction ends, as `fence` does.
{{get_lock: Shared; Transaction; 10000}}
DECLARE @IsOpen int = (
    SELECT COUNT(*) FROM {sweeps} s WITH (NOLOCK)
    WHERE s.sweep_id = @sweep_id AND s.closed_at IS NULL AND @Answer >= 0
);
SELECT @IsOpen AS is_open;
IF @IsOpen = 0
BEGIN
    ROLLBACK TRANSACTION;
    SET XACT_ABORT OFF;
    RETURN;
END;

-- name: commit_at_once
-- Commits what `begin_at_once` began.
COMMIT TRANSACTION;
SET XACT_ABORT OFF;

-- name: count_waiting
-- Returns how many failed messages with one of these Dues are in back-off.
SELECT COUNT_BIG(*) AS waiting
FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due') t
JOIN {attempts} a WITH (READPAST, READCOMMITTEDLOCK) ON a.due_at = CONVERT(datetime2(7), t.due, 121)
WHERE a.source = @source AND a.next_attempt_at > SYSUTCDATETIME();

-- name: count_some_waiting
-- Returns how many failed messages of the source are in back-off, counted up to @most.
SELECT COUNT_BIG(*) AS waiting
FROM (
    SELECT TOP (@most) a.message_key
    FROM {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = @source AND a.next_attempt_at > SYSUTCDATETIME()
) w;

-- name: claim
-- Returns and locks due messages with these Dues, of each as many as are wanted, without messages in
-- back-off, paused or in @excluded; skips rows that others hold.
SELECT d.message_key, {{due_and_instant: d.due}},
       d.headers, d.body, d.destination, d.attempts
FROM (
    SELECT TOP (2147483647) {{tick: j.due}} AS tick, j.wanted
    FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due', wanted int '$.wanted') j
) t
CROSS APPLY (
    SELECT TOP (t.wanted) l.message_key, l.due, l.headers, l.body, l.destination, l.attempts
    FROM (
        {{locked_rows}}
        WHERE m.{due} = t.tick AND m.{due} < {{tick: @horizon}}
          AND {{not_paused: @paused}}
    ) l
    WHERE NOT EXISTS (
        {{back_off_of: l.message_key}}
      )
      AND NOT EXISTS (
        SELECT 1 FROM {{listed: @excluded}} p
        WHERE p.[value] = l.message_key COLLATE DATABASE_DEFAULT
      )
) d;

-- name: explain_unclaimed
-- Returns how many rows have each of these Dues, locked or not, and how many failed messages not in
-- @excluded are in back-off, or failed since the sweep began. Runs after the claim, on its own.
SELECT t.due, here.present, failures.waiting, failures.failed_since
FROM (
    SELECT TOP (2147483647) j.due, {{tick: j.due}} AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due') j
) t
CROSS JOIN (SELECT started_at FROM {sweeps} WHERE sweep_id = @sweep_id) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS present
    FROM {delayed} m WITH (NOLOCK)
    WHERE m.{due} = t.tick
) here
CROSS APPLY (
    SELECT COUNT_BIG(*) AS waiting,
           COUNT_BIG(k.is_new) AS failed_since
    FROM {attempts} a WITH (NOLOCK)
    CROSS APPLY (SELECT CASE WHEN a.last_failed_at >= s.started_at THEN 1 END AS is_new) k
    WHERE a.source = @source AND a.due_at = CONVERT(datetime2(7), t.due, 121)
      AND a.next_attempt_at > SYSUTCDATETIME()
      AND NOT EXISTS (
        SELECT 1 FROM {{listed: @excluded}} p
        WHERE p.[value] = a.message_key COLLATE DATABASE_DEFAULT
      )
) failures;

-- name: count_held_back
-- Returns how many messages with each of these Dues a claim leaves out because they are paused. Runs after the
-- claim, on its own.
SELECT t.due, here.held_back
FROM (
    SELECT TOP (2147483647) j.due, {{tick: j.due}} AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due') j
) t
CROSS APPLY (
    SELECT COUNT_BIG(*) AS held_back
    FROM {delayed} m WITH (NOLOCK)
    WHERE m.{due} = t.tick AND NOT {{not_paused: @paused}}
) here;

-- name: read_some_attempts
-- Returns `most` retry counters of the source, or all if there are fewer: then `read_attempts` is saved.
SELECT TOP (@most) a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = @source;

-- name: read_attempts
-- Returns the retry counters of claimed messages. Runs after the claim, on its own: with row versions it must
-- see the state committed before the claim's locks. It skips none: only who holds a message writes its counter.
SELECT a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM {{listed: @keys}} k
JOIN {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
  ON a.source = @source AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: reserve
-- Reserves seconds of a limit after reserved ones, and returns after how many seconds they begin. Locks the limit's
-- row until this transaction ends; waits for others. More than a hundred are from before the clock was set back.
DECLARE @Now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
DECLARE @Length bigint = CONVERT(bigint, CONVERT(float, @seconds) * 1000000);
DECLARE @Latest bigint = @Now + CASE WHEN @Length > 100000 THEN 100 * @Length ELSE 10000000 END;
INSERT INTO {limits} (source, pattern, free_us)
SELECT @source, @pattern, @Now
WHERE NOT EXISTS (
    SELECT 1 FROM {limits} l WITH (UPDLOCK, HOLDLOCK) WHERE l.source = @source AND l.pattern = @pattern
);
UPDATE {limits} WITH (UPDLOCK)
SET free_us = CASE WHEN free_us > @Latest THEN @Latest WHEN free_us > @Now THEN free_us ELSE @Now END + @Length
WHERE source = @source AND pattern = @pattern;
SELECT CASE WHEN l.free_us - @Length > @Now THEN (l.free_us - @Length - @Now) / 1000000.0 ELSE 0.0 END
           AS wait_seconds
FROM {limits} l
WHERE l.source = @source AND l.pattern = @pattern;

-- name: lock_sweep_counters
-- Returns how many messages the sweep has exhausted. Holds a lock until this transaction ends, so that its
-- slices count one after another. Waits 10 s at most: then `answer` is negative.
{{get_lock: Exclusive; Transaction; 10000}}
SELECT @Answer AS answer, s.exhausted FROM {sweeps} s WHERE s.sweep_id = @sweep_id;

-- name: journal_exhausted
-- Journals a message that is out of attempts, whole.
INSERT INTO {journal} (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due_us,
    dispatched_us, attempts, first_failed_us, error_class, error_text, stack, headers, headers_text,
    body
)
SELECT @sweep_id, @slice, 'exhausted', @message_key, @message_id, @message_type, @destination, @queue,
       @due_us, @dispatched_us, @attempts,
       COALESCE((
           SELECT DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at)
           FROM {attempts} a
           WHERE a.source = @source AND a.message_key = @message_key
       ), @dispatched_us),
       @error_class, @error_text, @stack, @headers, @headers_text, CONVERT(varbinary(max), @body);

-- name: remove_first
-- Removes the first @rows unlocked messages of a Due, without messages in back-off and in @kept, and
-- returns their keys: the caller compares them. Costs the same however many share the Due; no index has keys.
SET NOCOUNT ON;
-- A table with triggers allows no other OUTPUT.
DECLARE @Gone TABLE (message_key nvarchar(250));
DECLARE @Tick datetime = {{tick: @due}};
WITH firsts AS (
    SELECT TOP (@rows) m.{key}
    FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.{due} = @Tick
      AND NOT EXISTS (
        {{back_off_of: {key_text}}}
      )
      AND NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), @kept)) WITH (message_key {key_type} '$') k
        WHERE k.message_key = m.{key}
      )
)
DELETE firsts OUTPUT deleted.{key} INTO @Gone FROM firsts;
SET NOCOUNT OFF;
SELECT g.message_key FROM @Gone g;

-- name: remove
-- Removes claimed messages, whose locks this transaction holds, by Dues and keys, and returns how many. The key
-- is not indexed, so all messages with that Due are looked at for each. The driver would return a trigger's count.
DELETE d
FROM {delayed} d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK{seek})
JOIN OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
    due varchar(27) '$.due', message_key {key_type} '$.key'
) k
  ON d.{due} = {{tick: k.due}} AND d.{key} = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: set_span
-- Declares the Dues from and to which the next statements of the same batch go. A variable serves the index.
DECLARE @First datetime = {{tick: @first}}, @Last datetime = {{tick: @last}};

-- name: read_span
-- Returns at most @most messages of the span, with the sizes of their bodies; skips rows that others hold, and locks
-- none. Without FORCESEEK the server could read the whole table: it does not know the variables' values.
SELECT TOP (@most) {key_text} AS message_key, {{tick_text: m.{due}}} AS due, m.Headers AS headers,
       {destination} AS destination, COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE m.{due} >= @First AND m.{due} <= @Last;

-- fragment: fail_if
IF $1 THROW 50000, N'$2', 1;

-- name: refuse_triggers
-- Fails if one of the given tables has a trigger, which could undo a move without an error.
DECLARE @Triggers int = (
    SELECT COUNT(*)
    FROM OPENJSON(CONVERT(nvarchar(max), @tables)) WITH (name nvarchar(max) '$') t
    JOIN sys.triggers g ON g.parent_id = OBJECT_ID(t.name)
    WHERE g.is_disabled = 0
);
{{fail_if: @Triggers > 0; a table has a trigger}}

-- fragment: move_span
-- The keys are listed once: a list has no statistics, and could be read for each row. The order is the queue's. LEN
-- counts no spaces at the end, but headers that are cut end with a brace, NCHAR(125).
INSERT INTO {queue} ($1)
SELECT $2, CASE WHEN @cut = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - @cut) + NCHAR(125) END, m.{body}
FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN {{typed_keys}} k (message_key)
  ON k.message_key = m.{key}
WHERE m.{due} >= @First AND m.{due} <= @Last
ORDER BY m.{due}
OPTION (HASH JOIN);
{{fail_if: @@ROWCOUNT <> @messages; a queue did not take each message that was read: others have some, or it drops some}}

-- name: move_span
-- Appends messages of the span to a queue table, with the last @cut characters of their headers replaced by a brace;
-- locks them until this transaction ends. Fails if there are not as many as were read. Their bodies stay in the server.
{{move_span: Id, Headers, Body; NEWID()}}

-- name: move_recoverable_span
-- Appends as `move_span` to a queue table of the older shape, and locks the messages.
{{move_span: Id, Recoverable, Headers, Body; NEWID(), 1}}

-- fragment: span_removed
-- One more shows that others came.
{{fail_if: @@ROWCOUNT <> @messages; others came among the messages}}

-- name: remove_span
-- Removes the unlocked messages of the span. Fails if there are not as many as were moved, whose locks this
-- transaction holds.
DELETE TOP (@most) FROM {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE {due} >= @First AND {due} <= @Last;
{{span_removed}}

-- name: seek_and_remove_span
-- Removes as `remove_span`, by the index on Due: without FORCESEEK, which the target of a DELETE cannot have, the server
-- could read the whole table. The transaction holds the locks of the moved messages. Babelfish has no such form.
WITH span AS (
    SELECT TOP (@most) m.{key}
    FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE m.{due} >= @First AND m.{due} <= @Last
)
DELETE FROM span;
{{span_removed}}

-- name: refuse_failures
-- Fails if the source has a retry counter: it had none when the messages were read, whose locks this transaction holds
-- now.
IF EXISTS (SELECT 1 FROM {attempts} a WITH (READPAST, READCOMMITTEDLOCK) WHERE a.source = @source)
    THROW 50000, N'messages have failed since they were read', 1;

-- name: refuse_new_failures
-- Fails if the retry counters of these messages have another sum than when the messages were read, whose locks this
-- transaction holds now.
DECLARE @Attempts bigint = (
    SELECT COALESCE(SUM(CONVERT(bigint, a.attempts)), 0)
    FROM {{listed: @keys}} k
    JOIN {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
      ON a.source = @source AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT
);
{{fail_if: @Attempts <> @failures; messages have failed since they were read}}

-- name: remove_by_id
-- Removes claimed messages, whose locks this transaction holds, by their keys, which are indexed, and returns
-- how many.
DELETE FROM {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE {key} IN {{typed_keys}};
SELECT @@ROWCOUNT AS messages;

-- name: clear_attempts
-- Deletes the retry counters of messages that leave the store, whose locks this transaction holds.
DELETE a
FROM {attempts} a
JOIN {{listed: @keys}} k
  ON a.message_key = k.[value] COLLATE DATABASE_DEFAULT
WHERE a.source = @source;

-- name: raise_attempts
-- Counts one failure for a message, whose lock this transaction holds: so no other session does the same.
SET NOCOUNT ON;
UPDATE {attempts}
SET attempts = @attempts,
    destination = @destination,
    due_at = CONVERT(datetime2(7), @due, 121),
    last_failed_at = SYSUTCDATETIME(),
    next_attempt_at = DATEADD(
        millisecond, @retry_ms, DATEADD(second, @retry_seconds, SYSUTCDATETIME())
    ),
    error_class = @error_class,
    error_text = @error_text
WHERE source = @source AND message_key = @message_key;
IF @@ROWCOUNT = 0
INSERT INTO {attempts} (
    source, message_key, message_id, destination, due_at, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
) VALUES (
    @source, @message_key, @message_id, @destination, CONVERT(datetime2(7), @due, 121), @attempts,
    SYSUTCDATETIME(), SYSUTCDATETIME(),
    DATEADD(millisecond, @retry_ms, DATEADD(second, @retry_seconds, SYSUTCDATETIME())),
    @error_class, @error_text
);
SET NOCOUNT OFF;

-- name: raise_retry_counts
-- Raises RetryCount in the messages' own rows, as the MSMQ transport does. This transaction holds their locks.
UPDATE {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET RetryCount = RetryCount + 1
WHERE {key} IN (
    SELECT k.[value] COLLATE DATABASE_DEFAULT FROM {{listed: @keys}} k
);

-- name: add_exhausted
-- Adds to the sweep's counts of exhausted messages and of messages over the limit.
UPDATE {sweeps} SET exhausted = exhausted + @exhausted, over_limit = over_limit + @over_limit
WHERE sweep_id = @sweep_id;

-- name: journal_batch
-- Journals the results of a batch, in the batch's own transaction.
INSERT INTO {journal} (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    @sweep_id, @slice, 'batch', @dispatched, @failed, @body_bytes, @attempts_changed,
    CONVERT(varbinary(max), @lateness_ms), CONVERT(varbinary(max), @outcomes)
);

-- name: refuse_dropped
-- Fails if the statement before it, in the same batch, has added no row.
{{fail_if: @@ROWCOUNT = 0; the journal did not take a row}}

-- name: journal_slice
-- Journals the end of a slice: its account, why it was cut, the circuit breakers that opened, and the batches
-- that the store could not move.
INSERT INTO {journal} (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, [left], reason, breakers, error_text
) VALUES (
    @sweep_id, @slice, 'slice', @given, @claimed, @skipped, @gone, @later, @held, @left, @reason, @breakers,
    @careful_batches
);

-- name: fetch_next_due
-- Returns and locks the eligible message that has been due longest; skips rows that others hold.
SELECT TOP (1) l.message_key, {{due_and_instant: l.due}},
       l.headers, l.body, l.destination, l.attempts
FROM (
    {{locked_rows}}
    WHERE m.{due} < GETUTCDATE()
    ORDER BY m.{due}
) l
WHERE NOT EXISTS (
    {{back_off_of: l.message_key}}
  )
ORDER BY l.due;

-- name: store_message
-- Stores a message until an instant, and returns its key. A table with triggers allows no OUTPUT.
INSERT INTO {delayed} (Headers, Body, Due)
VALUES (@headers, CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121));
SELECT CONVERT(bigint, SCOPE_IDENTITY()) AS message_key;

-- name: store_msmq_message
-- Stores a message until an instant, in the MSMQ transport's table.
INSERT INTO {delayed} (Id, Destination, Time, Headers, State)
VALUES (
    @message_key, @destination, CONVERT(datetime, @due, 121), CONVERT(varbinary(max), @headers),
    CONVERT(varbinary(max), @body)
);

-- name: store_timeout
-- Stores a timeout until an instant, as SQL persistence does.
INSERT INTO {delayed} (Id, Destination, SagaId, State, Time, Headers, PersistenceVersion)
VALUES (
    CONVERT(uniqueidentifier, @message_key), @destination, CONVERT(uniqueidentifier, @saga_id),
    CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121), @headers, @version
);

-- name: send_later
-- Stores a message until a delay has passed, as the transport does.
{{without_counts
    DECLARE @Due datetime = GETUTCDATE();
    SET @Due = DATEADD(ms, @milliseconds, @Due);
    SET @Due = DATEADD(s, @seconds, @Due);
    SET @Due = DATEADD(n, @minutes, @Due);
    SET @Due = DATEADD(hh, @hours, @Due);
    SET @Due = DATEADD(d, @days, @Due);
    INSERT INTO {delayed} (Headers, Body, Due)
    VALUES (@headers, CAST(@body AS varbinary(max)), @Due);
}}
