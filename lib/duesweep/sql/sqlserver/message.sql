-- Message: operations on one delayed message.

-- name: next_due
-- Returns the earliest Due from `since` on. NULL: there is none. Skips rows that others hold; keeps no
-- locks.
SELECT {{tick_text: MIN(d.{due})}} AS due
FROM {delayed} d WITH (READPAST, READCOMMITTEDLOCK)
WHERE d.{due} >= {{tick: @since}};

-- name: fetch_next_due
-- Returns the eligible message that has been due longest. Locks rows only, until this transaction
-- ends; skips rows that others hold. Looks at no more than 2,000 rows: with their pages, they stay
-- below the 5,000 locks at which SQL Server locks the whole table.
SELECT TOP (1) l.message_key, {{tick_text: l.due}} AS due,
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

-- name: find_message
-- Returns a message's key if the message is still there with this Due. Locks it until this
-- transaction ends; waits for others that hold it.
SELECT d.{key} AS message_key
FROM {delayed} d WITH (UPDLOCK, ROWLOCK)
WHERE d.{due} = {{tick: @due}} AND d.{key} = CONVERT({key_type}, @message_key){collate};

-- name: store_message
-- Stores a message until an instant, and returns its key. Locks the new row only.
INSERT INTO {delayed} (Headers, Body, Due)
OUTPUT inserted.RowVersion AS message_key
VALUES (@headers, CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121));

-- name: store_msmq_message
-- Stores a message until an instant, in the MSMQ transport's table. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, Time, Headers, State)
VALUES (
    @message_key, @destination, CONVERT(datetime, @due, 121), CONVERT(varbinary(max), @headers),
    CONVERT(varbinary(max), @body)
);

-- name: store_timeout
-- Stores a timeout until an instant, as SQL persistence does. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, SagaId, State, Time, Headers, PersistenceVersion)
VALUES (
    CONVERT(uniqueidentifier, @message_key), @destination, CONVERT(uniqueidentifier, @saga_id),
    CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121), @headers, @version
);

-- name: send_later
-- Stores a message until a delay has passed, as the transport does. Locks the new row only.
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
