-- Operators: statements to read, change, hold back, audit and clean up messages. With NOLOCK a read takes no locks,
-- waits for no other session and shows uncommitted rows; it may miss a row that moves. Who changes a message locks it first, and
-- who audits looks twice.
--
-- Fragments of other files: listed, typed_keys (batch.sql); due_and_instant, tick (plan.sql).

-- name: look
-- Returns the messages due from @first to before @end (NULL: no limit), in UTC whatever @zone is, the earliest first;
-- within one Due in no order. The hint has it read the index: else the server would have to sort all messages.
SELECT {key_text} AS message_key, {{due_and_instant: m.{due}}},
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, {destination} AS destination,
       {retry_count} AS attempts, COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} >= COALESCE({{tick: @first}}, CAST('17530101' AS datetime))
  -- The bound of the index, with the last `datetime`.
  AND m.{due} <= COALESCE({{tick: @end}}, CAST('99991231 23:59:59.997' AS datetime))
  AND ({{tick: @end}} IS NULL OR m.{due} < {{tick: @end}})
ORDER BY m.{due}
OPTION (FAST 1000);

-- name: look_timeless
-- Returns the messages without a Due, as `look` does.
SELECT {key_text} AS message_key, CONVERT(varchar(27), NULL) AS due,
       CONVERT(bigint, NULL) AS due_us, CONVERT(bigint, NULL) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, {destination} AS destination,
       {retry_count} AS attempts, COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} IS NULL;

-- name: find
-- Returns the messages with these keys, as `look` does; with their bodies if @with_body is 1. Reads the whole table
-- where keys are not indexed. Dues are UTC's, whatever @zone is.
SELECT {key_text} AS message_key, {{due_and_instant: m.{due}}},
       m.Headers AS headers, CASE WHEN @with_body = 1 THEN m.{body} END AS body,
       {destination} AS destination, {retry_count} AS attempts,
       COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: read_failures
-- Returns how often each of these messages has failed, when it is eligible again, and its last error.
SELECT a.message_key, a.attempts,
       a.next_attempt_at, a.error_text
FROM {{listed: @keys}} k
JOIN {attempts} a WITH (NOLOCK)
  ON a.source = @source AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: count_buckets
-- Returns how many messages are due before the first of these instants (bucket 0), before the second (1), and so on;
-- in UTC, whatever @zone is. The bucket NULL has those without a Due.
SELECT s.bucket, here.messages
FROM (
    SELECT TOP (2147483647) k.bucket, k.first, LEAD(k.first) OVER (ORDER BY k.bucket) AS next
    FROM (
        SELECT 0 AS bucket, CAST('17530101' AS datetime) AS first
        UNION ALL
        SELECT CONVERT(int, j.[key]) + 1, {{tick: j.[value]}} FROM OPENJSON(CONVERT(nvarchar(max), @ends)) j
    ) k
) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS messages
    FROM {delayed} m WITH (NOLOCK)
    WHERE m.{due} >= s.first AND m.{due} <= COALESCE(s.next, CAST('99991231 23:59:59.997' AS datetime))
      AND (s.next IS NULL OR m.{due} < s.next)
) here
UNION ALL
SELECT NULL AS bucket, COUNT_BIG(*) AS messages FROM {delayed} m WITH (NOLOCK) WHERE m.{due} IS NULL;

-- fragment: wanted
(
    SELECT TOP (2147483647) {{tick: j.due}} AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
        due varchar(27) '$.due', message_key {key_type} '$.key'
    ) j
)

-- name: hold
-- Returns and locks the messages with these Dues and keys that are still there, due or not; skips rows that others
-- hold. Keys are not indexed, so all messages with that Due may be locked too: for one batch of a command.
SELECT CONVERT(nvarchar(250), m.{key}) AS message_key,
       {{due_and_instant: m.{due}}}, m.Headers AS headers,
       m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
FROM {{wanted}} t
JOIN {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK{seek}) ON m.{due} = t.tick AND m.{key} = t.message_key;

-- name: hold_by_id
-- Returns and locks the messages with these keys, which are indexed, as `hold` does.
SELECT {key_text} AS message_key, {{due_and_instant: m.{due}}},
       m.Headers AS headers, m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: count_present
-- Returns how many messages with these Dues and keys are there, locked or not. Runs after `hold`, as a
-- statement of its own.
SELECT COUNT_BIG(*) AS present
FROM {{wanted}} t
JOIN {delayed} m WITH (NOLOCK) ON m.{due} = t.tick AND m.{key} = t.message_key;

-- name: count_present_by_id
-- Returns how many messages with these keys, which are indexed, are there, as `count_present` does.
SELECT COUNT_BIG(*) AS present
FROM {delayed} m WITH (NOLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: journal_cancelled
-- Journals a message that is cancelled, whole.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, headers_text, body
) VALUES (
    @sweep_id, 'cancelled', @changed_us, @message_key, @message_id, @message_type, @destination,
    @due_before_us, @attempts, @body_bytes, @headers, @headers_text, CONVERT(varbinary(max), @body)
);

-- name: reschedule
-- Gives messages, whose locks this transaction holds, a new Due, and returns how many. Each is found by its Due
-- and its key.
UPDATE d
SET {due} = {{tick: k.new_due}}
FROM {delayed} d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK{seek})
JOIN OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
    due varchar(27) '$.due', message_key {key_type} '$.key', new_due varchar(27) '$.new_due'
) k
  ON d.{due} = {{tick: k.due}} AND d.{key} = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: reschedule_by_id
-- Gives a message, whose lock this transaction holds, a new Due, and returns how many it found. It is found by
-- its key, which is indexed.
UPDATE {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET {due} = {{tick: @new_due}}
WHERE {key} = CONVERT({key_type}, @message_key){collate};
SELECT @@ROWCOUNT AS messages;

-- name: postpone_attempts
-- Lets a message in back-off be tried again at its new Due.
UPDATE {attempts}
SET next_attempt_at = {{tick: @new_due}}, due_at = {{tick: @new_due}}
WHERE source = @source AND message_key = @message_key;

-- name: journal_changes
-- Journals a change without headers and body.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, [of], new_key, attempts, body_bytes
) VALUES (
    @sweep_id, @change, @changed_us, @message_key, @message_id, @message_type, @destination,
    @due_before_us, @due_after_us, @undone, @new_key, @attempts, @body_bytes
);

-- name: pause
-- Pauses destinations, or changes a pause. Locks its row, and waits for others that pause the same.
UPDATE {pauses} WITH (UPDLOCK, HOLDLOCK)
SET paused_at = SYSUTCDATETIME(), until_at = CONVERT(datetime2(3), @until, 121), given_by = @given_by,
    reason = @reason
WHERE source = @source AND pattern = @pattern;
INSERT INTO {pauses} (source, pattern, until_at, given_by, reason)
SELECT @source, @pattern, CONVERT(datetime2(3), @until, 121), @given_by, @reason
WHERE NOT EXISTS (
    SELECT 1 FROM {pauses} p WITH (UPDLOCK, HOLDLOCK) WHERE p.source = @source AND p.pattern = @pattern
);

-- name: resume
-- Ends a pause of destinations.
DELETE FROM {pauses} WHERE source = @source AND pattern = @pattern;

-- name: read_pauses
-- Returns the pauses in force. One that is being changed is in force before and after it, so this does not wait.
SELECT p.pattern, p.paused_at, p.until_at, p.given_by, p.reason
FROM {pauses} p WITH (NOLOCK)
WHERE p.source = @source AND (p.until_at IS NULL OR p.until_at > SYSUTCDATETIME())
ORDER BY p.pattern;

-- name: drop_old_pauses
-- Deletes pauses that have ended; skips rows that others hold.
DELETE p FROM {pauses} p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.source = @source AND p.until_at <= SYSUTCDATETIME();

-- name: stored_keys
-- Returns the keys of all messages, in no order.
SELECT {key_text} AS message_key FROM {delayed} m WITH (NOLOCK);

-- name: gone_counters
-- Returns the keys of retry counters whose messages are not stored any more, up to @most. Reads the whole table
-- where keys are not indexed.
SELECT TOP (@most) a.message_key
FROM {attempts} a WITH (NOLOCK)
WHERE a.source = @source AND NOT EXISTS (
    SELECT 1 FROM {delayed} d WITH (NOLOCK)
    WHERE d.{key} = CONVERT({key_type}, a.message_key){collate}
)
ORDER BY a.message_key;

-- name: orphaned_journal
-- Returns the ids of sweeps and commands that have rows in the journal and no row of their own: no
-- sweep settles these.
SELECT LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id
FROM (
    SELECT sweep_id FROM {journal} WITH (NOLOCK)
    UNION
    SELECT sweep_id FROM {changes} WITH (NOLOCK)
) j
WHERE NOT EXISTS (SELECT 1 FROM {sweeps} s WITH (NOLOCK) WHERE s.sweep_id = j.sweep_id);

-- name: dropped_sources
-- Returns the sources whose delayed table does not exist any more, and how many of their sweeps and commands
-- are not settled.
SELECT b.source, b.delayed, (SELECT COUNT(*) FROM {sweeps} s WHERE s.source = b.source) AS unsettled
FROM {bindings} b
WHERE OBJECT_ID(b.delayed, 'U') IS NULL
ORDER BY b.source;

-- name: forget_attempts
-- Deletes retry counters of a source, at most 1,000 at a time.
DELETE TOP (1000) FROM {attempts} WHERE source = @source;

-- name: forget_pauses
-- Deletes all pauses of a source.
DELETE FROM {pauses} WHERE source = @source;

-- name: forget_limits
-- Deletes the reservations of a source's limits.
DELETE FROM {limits} WHERE source = @source;
