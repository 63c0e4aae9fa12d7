-- Command: what an operator's command does to messages, in its order; then how it is settled. A command
-- has its row in the table of sweeps, whose statements open, fence, close and seal both.

-- name: open_command
-- Opens an operator's command. Its row is the fence, as a sweep's is. Locks the new row only.
INSERT INTO {sweeps} (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (@sweep_id, @source, CONVERT(datetime2(7), @horizon, 121), @command, @given_by, @given_reason);

-- name: read_commands
-- Returns the commands of a source that are not settled. Keeps no locks.
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.command
FROM {sweeps} s
WHERE s.source = @source AND s.command IS NOT NULL;

-- name: read_command
-- Returns what a command is, and whether it changed retry counters. No row: it is a sweep. Keeps no
-- locks.
SELECT s.command, s.given_by, s.given_reason, CASE WHEN EXISTS (
    SELECT 1 FROM {changes} c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) THEN 1 ELSE 0 END AS attempts_changed
FROM {sweeps} s
WHERE s.sweep_id = @sweep_id AND s.command IS NOT NULL;

-- fragment: wanted
(
    SELECT TOP (2147483647) {{tick: j.due}} AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
        due varchar(27) '$.due', message_key {key_type} '$.key'
    ) j
)

-- name: hold
-- Returns the messages with these Dues and keys that are still there, due or not, as `claim` does. Locks
-- them until this transaction ends; skips rows that others hold. The key is not indexed, so all messages
-- with that Due are looked at, and may be locked with it for as long: one batch of a command.
SELECT CONVERT(nvarchar(250), m.{key}) AS message_key,
       {{tick_text: m.{due}}} AS due, m.Headers AS headers,
       m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
FROM {{wanted}} t
JOIN {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.{due} = t.tick AND m.{key} = t.message_key;

-- name: hold_by_id
-- Returns the messages with these keys, which are indexed, as `hold` does. Locks them until this
-- transaction ends; skips rows that others hold.
SELECT {key_text} AS message_key, {{tick_text: m.{due}}} AS due,
       m.Headers AS headers, m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: count_present
-- Returns how many messages with these Dues and keys are there, whoever holds them. Runs after `hold`, as
-- a statement of its own. Reads what others have not committed yet; keeps no locks.
SELECT COUNT_BIG(*) AS present
FROM {{wanted}} t
JOIN {delayed} m WITH (NOLOCK) ON m.{due} = t.tick AND m.{key} = t.message_key;

-- name: count_present_by_id
-- Returns how many messages with these keys, which are indexed, are there, as `count_present` does. Keeps
-- no locks.
SELECT COUNT_BIG(*) AS present
FROM {delayed} m WITH (NOLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: journal_cancelled
-- Journals a message that is cancelled, with its headers and body. Locks the new row only.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, headers_text, body
) VALUES (
    @sweep_id, 'cancelled', @changed_us, @message_key, @message_id, @message_type, @destination,
    @due_before_us, @attempts, @body_bytes, @headers, @headers_text, CONVERT(varbinary(max), @body)
);

-- name: reschedule
-- Gives messages a new Due. Each is found by its Due and its key. This transaction holds the messages'
-- locks; rows that others hold are skipped.
UPDATE d
SET {due} = {{tick: k.new_due}}
FROM {delayed} d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
    due varchar(27) '$.due', message_key {key_type} '$.key', new_due varchar(27) '$.new_due'
) k
  ON d.{due} = {{tick: k.due}} AND d.{key} = k.message_key;

-- name: reschedule_by_id
-- Gives a message a new Due. The message is found by its key, which is indexed. This transaction holds
-- its lock.
UPDATE {delayed} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET {due} = {{tick: @new_due}}
WHERE {key} = CONVERT({key_type}, @message_key){collate};

-- name: postpone_attempts
-- Lets a message in back-off be tried again at its new Due. This transaction holds the message's lock.
UPDATE {attempts}
SET next_attempt_at = CONVERT(datetime2(7), @new_due, 121), due_at = CONVERT(datetime2(7), @new_due, 121)
WHERE source = @source AND message_key = @message_key;

-- name: journal_changes
-- Journals a change without headers and body. Locks the new row only.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, queue, [of], new_key, attempts, body_bytes
) VALUES (
    @sweep_id, @change, @changed_us, @message_key, @message_id, @message_type, @destination,
    @due_before_us, @due_after_us, @queue, @undone, @new_key, @attempts, @body_bytes
);

-- name: changes_pieces
-- Returns what a sealed command changed, in pieces of about so many bytes: the first and the last id of
-- each, its changes, and the size of its longest one. Nobody changes a sealed command, so the pieces are
-- the same each time. Keeps no locks.
{{pieces
    SELECT c.id,
           CONVERT(bigint, 1000 + COALESCE(DATALENGTH(c.headers_text), 0)
               + COALESCE(DATALENGTH(c.headers), 0) + COALESCE(DATALENGTH(c.body), 0)) AS bytes
    FROM {changes} c
    WHERE c.sweep_id = @sweep_id
}}

-- name: read_changes
-- Returns a piece of what a sealed command changed. Times are microseconds since 1970-01-01 UTC. Spark
-- runs this over JDBC as a subquery and can bind no values, so the ids are literals. Keeps no locks.
SELECT c.id, LOWER(CONVERT(varchar(36), c.sweep_id)) AS sweep_id, s.command, c.change,
       c.changed_us AS changed_at, s.given_by, s.given_reason AS reason, c.message_key, c.message_id,
       c.message_type, c.destination, c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue,
       c.[of], c.new_key, c.attempts, c.headers, c.headers_text, c.body, c.body_bytes
FROM {changes} c
JOIN {sweeps} s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = CONVERT(uniqueidentifier, {sweep_id})
  AND c.id BETWEEN CONVERT(bigint, {first_id}) AND CONVERT(bigint, {last_id})

-- name: delete_changes
-- Deletes changes of a settled command. Locks these rows: at most 1,000 at a time, fewer than make SQL
-- Server lock the whole table.
DELETE TOP (1000) FROM {changes} WHERE sweep_id = @sweep_id;
