-- Queue: queue tables, their messages in and out, and subscriptions.
--
-- Fragments of other files: create_once, under_lock (setup.sql).

-- name: queue_tables
-- Returns all tables of the database that have the columns of a queue table, whether each has the older shape,
-- with a column Recoverable, and whether its headers are varchar.
SELECT c.TABLE_SCHEMA AS [schema], c.TABLE_NAME AS [table],
       MAX(CASE WHEN c.COLUMN_NAME = 'Recoverable' THEN 1 ELSE 0 END) AS has_recoverable,
       MAX(CASE WHEN c.COLUMN_NAME = 'Headers' AND c.DATA_TYPE = 'varchar' THEN 1 ELSE 0 END) AS is_narrow
FROM INFORMATION_SCHEMA.COLUMNS c
-- Any object but a view is a table. Not a join with the tables, for which some servers take seconds.
WHERE QUOTENAME(c.TABLE_SCHEMA) + QUOTENAME(c.TABLE_NAME) NOT IN (
    SELECT QUOTENAME(v.TABLE_SCHEMA) + QUOTENAME(v.TABLE_NAME) FROM INFORMATION_SCHEMA.VIEWS v
)
GROUP BY c.TABLE_SCHEMA, c.TABLE_NAME
HAVING COUNT(CASE
    WHEN c.COLUMN_NAME = 'Id' AND c.DATA_TYPE = 'uniqueidentifier' THEN 1
    WHEN c.COLUMN_NAME = 'Headers' AND c.DATA_TYPE IN ('nvarchar', 'varchar') THEN 1
    WHEN c.COLUMN_NAME = 'Body' AND c.DATA_TYPE = 'varbinary' THEN 1
    WHEN c.COLUMN_NAME IN ('Expires', 'RowVersion') THEN 1
END) = 5;

-- name: queue_indexes
-- Returns the tables of the database with a usable index that begins with Expires or RowVersion, and that column.
SELECT s.name AS [schema], t.name AS [table], LOWER(c.name) AS column_name
FROM sys.indexes i
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
JOIN sys.tables t ON t.object_id = i.object_id
JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE i.is_disabled = 0 AND i.type IN (1, 2) AND ic.key_ordinal = 1
  AND (LOWER(c.name) = 'expires' OR (LOWER(c.name) = 'rowversion' AND i.has_filter = 0));

-- name: create_queue
-- Creates a queue table as the transport does, unless it exists. An application lock lets one
-- session at a time create it.
{{create_once: queue
    CREATE TABLE {queue} (
        Id uniqueidentifier NOT NULL,
        CorrelationId varchar(255),
        ReplyToAddress varchar(255),
        Recoverable bit NOT NULL,
        Expires datetime,
        Headers nvarchar(max) NOT NULL,
        Body varbinary(max),
        RowVersion bigint IDENTITY(1,1) NOT NULL
    );
    CREATE NONCLUSTERED INDEX [Index_RowVersion] ON {queue} ([RowVersion] ASC);
    CREATE NONCLUSTERED INDEX [Index_Expires] ON {queue} ([Expires]) INCLUDE ([Id], [RowVersion])
        WHERE [Expires] IS NOT NULL;
}}

-- name: add_body_string
-- Adds the column that shows bodies as text, unless it exists. An application lock lets one session
-- at a time do so. The table is locked for a moment.
{{under_lock: queue; changing
    IF COL_LENGTH(N'{queue_literal}', 'BodyString') IS NULL
        ALTER TABLE {queue} ADD BodyString AS CAST(Body AS nvarchar(max));
}}

-- name: probe_queue
-- Inserts nothing. An error tells whether the queue table is missing or this user may not insert into it or
-- select from it.
INSERT INTO {queue} (Id, Headers) SELECT q.Id, q.Headers FROM {queue} q WHERE 1 = 0;

-- name: insert_message
-- Appends a message to a queue table.
INSERT INTO {queue} (Id, Headers, Body) VALUES (@id, @headers, @body);

-- name: insert_recoverable_message
-- Appends a message to a queue table of the older shape.
INSERT INTO {queue} (Id, Recoverable, Headers, Body) VALUES (@id, 1, @headers, @body);

-- name: last_message
-- Returns the number of the newest message in a queue, or 0 if the queue is empty.
SELECT COALESCE(MAX(q.RowVersion), 0) AS number FROM {queue} q WITH (READPAST, READCOMMITTEDLOCK);

-- name: count_arrived
-- Returns how many of these messages are in a queue with a number above @number, and the transaction's state. Does
-- not wait for other slices that deliver to the same queue.
SELECT COUNT_BIG(*) AS arrived, XACT_STATE() AS state
FROM {queue} q WITH (READPAST, READCOMMITTEDLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), @ids)) WITH (id uniqueidentifier '$') i ON i.id = q.Id
WHERE q.RowVersion > @number;

-- fragment: without_counts
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
$1
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- fragment: send
{{without_counts
    DECLARE @Seconds int = @seconds, @Milliseconds int = @milliseconds;
    INSERT INTO {queue} ($1, Expires, Headers, Body)
    VALUES (
        $2, DATEADD(ms, @Milliseconds, DATEADD(s, @Seconds, GETUTCDATE())), @headers,
        CAST(@body AS varbinary(max))
    );
}}

-- name: send
-- Appends a message to a queue table. Without a time to be received, the message never expires.
{{send: Id; @id}}

-- name: send_recoverable
-- Appends a message to a queue table of the older shape, as `send` does.
{{send: Id, Recoverable; @id, 1}}

-- fragment: receive
{{without_counts
    DECLARE @Now datetime = GETUTCDATE();
    DELETE q
    OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,
        deleted.Expires AS expires, $1
    FROM {queue} AS q WITH (ROWLOCK)
    WHERE q.RowVersion = (
        SELECT TOP (1) RowVersion FROM {queue} WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion
    );
}}

-- name: receive
-- Returns and removes the first unlocked message, with its expiry and the server's time; never waits.
-- No other session finds the row that the subquery has locked, so the DELETE cannot miss it.
{{receive: @Now AS utc_now}}

-- name: receive_with_columns
-- Returns the columns of `receive`, and the two of the older shape in which senders of version 1 put values that
-- others put into headers. Locks as `receive` does.
{{receive
    @Now AS utc_now,
    deleted.CorrelationId AS correlation_id, deleted.ReplyToAddress AS reply_to_address
}}

-- name: peek
-- Returns how many messages are unlocked, at most a batch. Locks each row only while it is read.
SELECT COUNT(*) AS messages
FROM (
    SELECT TOP (@batch) RowVersion FROM {queue} WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
) AS Waiting;

-- name: purge
-- Removes at most a batch of messages; skips locked rows.
DELETE TOP (@batch) FROM {queue} WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK);

-- name: purge_expired
-- Removes at most a batch of expired messages; skips locked rows.
DELETE TOP (@batch) FROM {queue} WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE Expires < GETUTCDATE();

-- name: create_subscriptions
-- Creates the table of subscriptions as the transport does, unless it exists. An application lock
-- lets one session at a time create it.
{{create_once: subscriptions
    CREATE TABLE {subscriptions} (
        QueueAddress nvarchar(200) NOT NULL,
        Endpoint nvarchar(200) NOT NULL,
        Topic nvarchar(200) NOT NULL,
        PRIMARY KEY CLUSTERED (Endpoint, Topic)
    );
}}

-- name: subscribe
-- Subscribes an endpoint to a topic, or replaces the address of its subscription. Must run in a transaction: locks
-- that row, or the gap where it will be, until the transaction ends.
DECLARE @Address nvarchar(200) = @queue_address, @Endpoint nvarchar(200) = @endpoint,
    @Topic nvarchar(200) = @topic;
UPDATE {subscriptions} WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) SET QueueAddress = @Address
WHERE Endpoint = @Endpoint AND Topic = @Topic;
IF @@ROWCOUNT = 0
    INSERT INTO {subscriptions} (QueueAddress, Endpoint, Topic)
    VALUES (@Address, @Endpoint, @Topic);

-- name: unsubscribe
-- Removes an endpoint's subscription to a topic.
DELETE FROM {subscriptions} WITH (ROWLOCK) WHERE Endpoint = @endpoint AND Topic = @topic;

-- name: list_subscribers
-- Returns the addresses that subscribe to a topic, each once.
SELECT DISTINCT QueueAddress AS queue_address FROM {subscriptions} WHERE Topic = @topic;
