-- Message: one delayed message at a time, for the store's own operations.

-- name: next_due
-- Returns the earliest Due that is stored, NULL where there is none. Skips what others hold; keeps no
-- locks.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), MIN(d.{due})), 121) AS due FROM {delayed} d WITH (READPAST);

-- name: fetch_next_due
-- Returns the message that has been due for the longest and is eligible, locked: row locks only, and on
-- 2,000 rows at the most, with their pages under the 5,000 locks at which SQL Server would lock the
-- table. Skips what others
-- hold.
SELECT TOP (1) l.message_key, CONVERT(varchar(27), CONVERT(datetime2(7), l.due), 121) AS due,
       l.headers, l.body, l.destination, l.attempts
FROM (
    SELECT TOP (2000) {key_text} AS message_key, m.{due} AS due, m.Headers AS headers,
           m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
    FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.{due} < GETUTCDATE()
    ORDER BY m.{due}
) l
WHERE NOT EXISTS (
    SELECT 1 FROM {attempts} a WITH (READPAST)
    WHERE a.source = @source
      AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY l.due;

-- name: find_message
-- Returns a message's key if it is (still) there with its Due, locked.
SELECT d.{key} AS message_key
FROM {delayed} d WITH (UPDLOCK, ROWLOCK)
WHERE d.{due} = CONVERT(datetime2(7), @due, 121) AND d.{key} = CONVERT({key_type}, @message_key){collate};

-- name: store_message
-- Stores a message until a moment; returns its key. Locks the new row only.
INSERT INTO {delayed} (Headers, Body, Due)
OUTPUT inserted.RowVersion AS message_key
VALUES (@headers, CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121));

-- name: store_msmq_message
-- Stores a message until a moment. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, Time, Headers, State)
VALUES (
    @message_key, @destination, CONVERT(datetime, @due, 121), CONVERT(varbinary(max), @headers),
    CONVERT(varbinary(max), @body)
);

-- name: store_timeout
-- Stores a timeout until a moment, as SQL persistence does. Locks the new row only.
INSERT INTO {delayed} (Id, Destination, SagaId, State, Time, Headers, PersistenceVersion)
VALUES (
    CONVERT(uniqueidentifier, @message_key), @destination, CONVERT(uniqueidentifier, @saga_id),
    CONVERT(varbinary(max), @body), CONVERT(datetime, @due, 121), @headers, @version
);

-- name: send_later
-- Stores a message until it is due, as the transport does. Locks the new row only.
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Due datetime = GETUTCDATE();
SET @Due = DATEADD(ms, @milliseconds, @Due);
SET @Due = DATEADD(s, @seconds, @Due);
SET @Due = DATEADD(n, @minutes, @Due);
SET @Due = DATEADD(hh, @hours, @Due);
SET @Due = DATEADD(d, @days, @Due);
INSERT INTO {delayed} (Headers, Body, Due)
VALUES (@headers, CAST(@body AS varbinary(max)), @Due);
IF @Nocount = 'OFF' SET NOCOUNT OFF;
