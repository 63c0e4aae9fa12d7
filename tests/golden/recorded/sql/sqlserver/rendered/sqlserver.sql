-- name: add_body_string
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockMode = 'Exclusive',
    @LockOwner = 'Session', @LockTimeout = 30000;
IF @Answer < 0 THROW 50000, N'Another session has been changing this table for too long', 1;
BEGIN TRY
    IF COL_LENGTH(N'[nsb].[dbo].[queue]', 'BodyString') IS NULL
        ALTER TABLE [nsb].[dbo].[queue] ADD BodyString AS CAST(Body AS nvarchar(max));
END TRY
BEGIN CATCH
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockOwner = 'Session';
    THROW;
END CATCH;
EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockOwner = 'Session';

-- name: add_exhausted
-- exhausted, over_limit, sweep_id
UPDATE [nsb].[dbo].[sweeps] SET exhausted = exhausted + ?, over_limit = over_limit + ?
WHERE sweep_id = ?;

-- name: are_batches_over
-- lock, sweep_id
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 0;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS are_over
FROM [nsb].[dbo].[sweeps] s
WHERE s.sweep_id = ? AND s.closed_at IS NULL;

-- name: await_batches
-- lock, sweep_id
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 25000;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS are_over
FROM [nsb].[dbo].[sweeps] s
WHERE s.sweep_id = ? AND s.closed_at IS NULL;

-- name: begin_at_once
SET XACT_ABORT ON;
BEGIN TRANSACTION;

-- name: bind
-- ledger_id, source, source, delayed, ledger_id, source
UPDATE [nsb].[dbo].[bindings] SET ledger_id = ?
WHERE source = ? AND ledger_id = '00000000-0000-0000-0000-000000000000';
INSERT INTO [nsb].[dbo].[bindings] (source, delayed, ledger_id)
SELECT ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[bindings] b WITH (UPDLOCK, HOLDLOCK) WHERE b.source = ?);

-- name: changes_pieces
-- piece_bytes, sweep_id
SELECT MIN(m.id) AS first_id, MAX(m.id) AS last_id
FROM (
    SELECT s.id,
           (SUM(s.bytes) OVER (ORDER BY s.id ROWS UNBOUNDED PRECEDING) - s.bytes) / ? AS piece
    FROM (
        SELECT c.id,
               CONVERT(bigint, 1000 + COALESCE(DATALENGTH(c.headers_text), 0)
                   + COALESCE(DATALENGTH(c.headers), 0) + COALESCE(DATALENGTH(c.body), 0)) AS bytes
        FROM [nsb].[dbo].[changes] c
        WHERE c.sweep_id = ?
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: claim
-- dues, horizon, paused, paused, source, excluded, separator
SELECT d.message_key, CAST(CONVERT(datetime2(7), d.due) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), d.due)) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), d.due)) AS instant_us,
       d.headers, d.body, d.destination, d.attempts
FROM (
    SELECT TOP (2147483647) CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick, j.wanted
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due', wanted int '$.wanted') j
) t
CROSS APPLY (
    SELECT TOP (t.wanted) l.message_key, l.due, l.headers, l.body, l.destination, l.attempts
    FROM (
        SELECT TOP (1600) CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, m.[Due] AS due, m.Headers AS headers,
               m.[Body] AS body, CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts
        FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE m.[Due] = t.tick AND m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
          AND (? = N'[]' OR NOT EXISTS (
            SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
            WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
          ))
    ) l
    WHERE NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ?
          AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) p
        WHERE p.[value] = l.message_key COLLATE DATABASE_DEFAULT
      )
) d;

-- name: clear_attempts
-- keys, separator, source
DELETE a
FROM [nsb].[dbo].[attempts] a
JOIN STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
  ON a.message_key = k.[value] COLLATE DATABASE_DEFAULT
WHERE a.source = ?;

-- name: close_sweep
-- abandoned, remaining, reason, sweep_id
UPDATE [nsb].[dbo].[sweeps]
SET closed_at = SYSUTCDATETIME(), abandoned = ?, remaining = ?, reason = ?
WHERE sweep_id = ?;

-- name: commit_at_once
COMMIT TRANSACTION;
SET XACT_ABORT OFF;

-- name: count_arrived
-- ids, number
SELECT COUNT_BIG(*) AS arrived, XACT_STATE() AS state
FROM [nsb].[dbo].[queue] q WITH (READPAST, READCOMMITTEDLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (id uniqueidentifier '$') i ON i.id = q.Id
WHERE q.RowVersion > ?;

-- name: count_buckets
-- ends
SELECT s.bucket, here.messages
FROM (
    SELECT TOP (2147483647) k.bucket, k.first, LEAD(k.first) OVER (ORDER BY k.bucket) AS next
    FROM (
        SELECT 0 AS bucket, CAST('17530101' AS datetime) AS first
        UNION ALL
        SELECT CONVERT(int, j.[key]) + 1, CAST(CONVERT(datetime2(7), j.[value], 121) AS datetime) FROM OPENJSON(CONVERT(nvarchar(max), ?)) j
    ) k
) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS messages
    FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
    WHERE m.[Due] >= s.first AND m.[Due] <= COALESCE(s.next, CAST('99991231 23:59:59.997' AS datetime))
      AND (s.next IS NULL OR m.[Due] < s.next)
) here
UNION ALL
SELECT NULL AS bucket, COUNT_BIG(*) AS messages FROM [nsb].[dbo].[delayed] m WITH (NOLOCK) WHERE m.[Due] IS NULL;

-- name: count_held_back
-- dues, paused, paused
SELECT t.due, here.held_back
FROM (
    SELECT TOP (2147483647) j.due, CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due') j
) t
CROSS APPLY (
    SELECT COUNT_BIG(*) AS held_back
    FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
    WHERE m.[Due] = t.tick AND NOT (? = N'[]' OR NOT EXISTS (
      SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
      WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
    ))
) here;

-- name: count_pending
-- most, horizon, since, paused, paused, source
SELECT COUNT_BIG(*) AS pending
FROM (
    SELECT TOP (?) 1 AS found
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
      AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
      AND (? = N'[]' OR NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
        WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
      ))
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) eligible;

-- name: count_present
-- messages
SELECT COUNT_BIG(*) AS present
FROM (
    SELECT TOP (2147483647) CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
        due varchar(27) '$.due', message_key bigint '$.key'
    ) j
) t
JOIN [nsb].[dbo].[delayed] m WITH (NOLOCK) ON m.[Due] = t.tick AND m.[RowVersion] = t.message_key;

-- name: count_present_by_id
-- keys, separator
SELECT COUNT_BIG(*) AS present
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[RowVersion] IN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: count_some_waiting
-- most, source
SELECT COUNT_BIG(*) AS waiting
FROM (
    SELECT TOP (?) a.message_key
    FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME()
) w;

-- name: count_stored
SELECT COUNT_BIG(*) AS stored FROM [nsb].[dbo].[delayed] m WITH (NOLOCK);

-- name: count_stored_since
-- since
SELECT COUNT_BIG(*) AS stored
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime));

-- name: count_timeless
SELECT COUNT_BIG(*) AS timeless FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK) WHERE d.[Due] IS NULL;

-- name: count_waiting
-- dues, source
SELECT COUNT_BIG(*) AS waiting
FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due') t
JOIN [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK) ON a.due_at = CONVERT(datetime2(7), t.due, 121)
WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME();

-- name: create_delayed
IF OBJECT_ID(N'[nsb].[dbo].[delayed]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[delayed]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[delayed] (
                Headers nvarchar(max) NOT NULL,
                Body varbinary(max),
                Due datetime NOT NULL,
                RowVersion bigint IDENTITY(1,1) NOT NULL
            );
            CREATE NONCLUSTERED INDEX [Index_Due] ON [nsb].[dbo].[delayed] ([Due]);
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
END;

-- name: create_due_index
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockMode = 'Exclusive',
    @LockOwner = 'Session', @LockTimeout = 30000;
IF @Answer < 0 THROW 50000, N'Another session has been changing this table for too long', 1;
BEGIN TRY
    IF NOT EXISTS (
        SELECT 1
        FROM sys.indexes i
        JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
        JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
        WHERE i.object_id = OBJECT_ID(N'[nsb].[dbo].[delayed]') AND i.is_disabled = 0 AND i.has_filter = 0
          AND i.type IN (1, 2) AND ic.key_ordinal = 1 AND LOWER(QUOTENAME(c.name)) = LOWER(N'[Due]')
    )
        CREATE NONCLUSTERED INDEX [Index_Due] ON [nsb].[dbo].[delayed] ([Due]);
END TRY
BEGIN CATCH
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
    THROW;
END CATCH;
EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';

-- name: create_journal
IF OBJECT_ID(N'[nsb].[dbo].[bindings]', 'U') IS NULL
CREATE TABLE [nsb].[dbo].[bindings] (
    source nvarchar(400) NOT NULL PRIMARY KEY,
    delayed nvarchar(400) NOT NULL,
    ledger_id uniqueidentifier NOT NULL,
    bound_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    journal_id uniqueidentifier,
    settled_sweep uniqueidentifier,
    settled_at datetime2(3),
    place nvarchar(max)
);
IF OBJECT_ID(N'[nsb].[dbo].[sweeps]', 'U') IS NULL
CREATE TABLE [nsb].[dbo].[sweeps] (
    sweep_id uniqueidentifier NOT NULL PRIMARY KEY,
    source nvarchar(400) NOT NULL,
    started_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    horizon datetime2(7) NOT NULL,
    planned nvarchar(max) NOT NULL DEFAULT N'[]',
    exhausted bigint NOT NULL DEFAULT 0,
    over_limit bigint NOT NULL DEFAULT 0,
    attempts_changed bit NOT NULL DEFAULT 0,
    closed_at datetime2(3),
    abandoned bit NOT NULL DEFAULT 0,
    remaining bigint NOT NULL DEFAULT 0,
    reason nvarchar(max),
    engine nvarchar(50),
    stop_at datetime2(3),
    sealed_at datetime2(3),
    command nvarchar(50),
    given_by nvarchar(max),
    given_reason nvarchar(max)
);
IF OBJECT_ID(N'[nsb].[dbo].[journal]', 'U') IS NULL
CREATE TABLE [nsb].[dbo].[journal] (
    id bigint IDENTITY(1,1) NOT NULL,
    sweep_id uniqueidentifier NOT NULL,
    slice int NOT NULL,
    kind varchar(10) NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    dispatched int,
    failed int,
    body_bytes bigint,
    attempts_changed bit,
    lateness_ms varbinary(max),
    outcomes varbinary(max),
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    held bigint,
    [left] bigint,
    reason nvarchar(max),
    breakers nvarchar(max),
    message_key nvarchar(250),
    message_id nvarchar(max),
    message_type nvarchar(max),
    destination nvarchar(max),
    queue nvarchar(max),
    due_us bigint,
    dispatched_us bigint,
    attempts int,
    first_failed_us bigint,
    error_class nvarchar(max),
    error_text nvarchar(max),
    stack nvarchar(max),
    headers nvarchar(max),
    headers_text nvarchar(max),
    body varbinary(max),
    PRIMARY KEY (sweep_id, id)
);
IF OBJECT_ID(N'[nsb].[dbo].[attempts]', 'U') IS NULL
BEGIN
CREATE TABLE [nsb].[dbo].[attempts] (
    source nvarchar(400) NOT NULL,
    message_key nvarchar(250) NOT NULL,
    message_id nvarchar(max),
    destination nvarchar(max),
    due_at datetime2(7),
    attempts int NOT NULL,
    first_failed_at datetime2(3) NOT NULL,
    last_failed_at datetime2(3) NOT NULL,
    next_attempt_at datetime2(3) NOT NULL,
    error_class nvarchar(max) NOT NULL,
    error_text nvarchar(max) NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_attempts_key ON [nsb].[dbo].[attempts] (source, message_key);
CREATE NONCLUSTERED INDEX duesweep_attempts_due ON [nsb].[dbo].[attempts] (source, due_at);
END;
IF OBJECT_ID(N'[nsb].[dbo].[changes]', 'U') IS NULL
CREATE TABLE [nsb].[dbo].[changes] (
    id bigint IDENTITY(1,1) NOT NULL,
    sweep_id uniqueidentifier NOT NULL REFERENCES [dbo].[sweeps] (sweep_id),
    change varchar(20) NOT NULL,
    changed_us bigint NOT NULL,
    message_key nvarchar(250) NOT NULL,
    message_id nvarchar(max),
    message_type nvarchar(max),
    destination nvarchar(max),
    due_before_us bigint,
    due_after_us bigint,
    queue nvarchar(max),
    [of] nvarchar(50),
    new_key nvarchar(250),
    attempts int NOT NULL,
    body_bytes bigint NOT NULL,
    headers nvarchar(max),
    headers_text nvarchar(max),
    body varbinary(max),
    PRIMARY KEY (sweep_id, id)
);
IF OBJECT_ID(N'[nsb].[dbo].[pauses]', 'U') IS NULL
BEGIN
CREATE TABLE [nsb].[dbo].[pauses] (
    source nvarchar(400) NOT NULL,
    pattern nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL,
    paused_at datetime2(3) NOT NULL DEFAULT SYSUTCDATETIME(),
    until_at datetime2(3),
    given_by nvarchar(400) NOT NULL,
    reason nvarchar(max) NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_pauses_key ON [nsb].[dbo].[pauses] (source, pattern);
END;
IF OBJECT_ID(N'[nsb].[dbo].[limits]', 'U') IS NULL
BEGIN
CREATE TABLE [nsb].[dbo].[limits] (
    source nvarchar(400) NOT NULL,
    pattern nvarchar(400) COLLATE Latin1_General_BIN2 NOT NULL,
    free_us bigint NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_limits_key ON [nsb].[dbo].[limits] (source, pattern);
END;
IF OBJECT_ID(N'[nsb].[dbo].[leases]', 'U') IS NULL
BEGIN
CREATE TABLE [nsb].[dbo].[leases] (
    name nvarchar(450) COLLATE Latin1_General_BIN2 NOT NULL,
    holder uniqueidentifier NOT NULL,
    process nvarchar(400) NOT NULL,
    mark nvarchar(400) NOT NULL,
    taken_at datetime2(7) NOT NULL,
    until_at datetime2(7) NOT NULL
);
CREATE UNIQUE NONCLUSTERED INDEX duesweep_leases_key ON [nsb].[dbo].[leases] (name);
END;
IF COL_LENGTH(N'[nsb].[dbo].[bindings]', 'journal_id') IS NULL
BEGIN
ALTER TABLE [nsb].[dbo].[bindings] ADD journal_id uniqueidentifier;
END;
IF COL_LENGTH(N'[nsb].[dbo].[bindings]', 'settled_sweep') IS NULL
BEGIN
ALTER TABLE [nsb].[dbo].[bindings] ADD settled_sweep uniqueidentifier;
END;
IF COL_LENGTH(N'[nsb].[dbo].[bindings]', 'settled_at') IS NULL
BEGIN
ALTER TABLE [nsb].[dbo].[bindings] ADD settled_at datetime2(3);
END;
IF COL_LENGTH(N'[nsb].[dbo].[bindings]', 'place') IS NULL
BEGIN
ALTER TABLE [nsb].[dbo].[bindings] ADD place nvarchar(max);
END;
IF EXISTS (
    SELECT 1 FROM sys.extended_properties p
    WHERE p.class = 1 AND p.major_id = OBJECT_ID(N'[nsb].[dbo].[journal]', 'U') AND p.minor_id = 0
      AND p.name = N'duesweep.format' AND CONVERT(nvarchar(200), p.[value]) = N'<first format>'
)
BEGIN
    EXEC sys.sp_dropextendedproperty N'duesweep.format', N'SCHEMA', N'dbo', N'TABLE', N'duesweep_journal';
END;
IF NOT EXISTS (
    SELECT 1 FROM sys.extended_properties p
    WHERE p.class = 1 AND p.major_id = OBJECT_ID(N'[nsb].[dbo].[journal]', 'U') AND p.minor_id = 0
      AND p.name = N'duesweep.format'
)
BEGIN
    EXEC sys.sp_addextendedproperty N'duesweep.format', N'<format>', N'SCHEMA', N'dbo', N'TABLE',
        N'duesweep_journal';
END;

-- name: create_msmq_delayed
IF OBJECT_ID(N'[nsb].[dbo].[delayed]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[delayed]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[delayed] (
                Id nvarchar(250) NOT NULL PRIMARY KEY,
                Destination nvarchar(200),
                State varbinary(max),
                Time datetime,
                Headers varbinary(max) NOT NULL,
                RetryCount int NOT NULL DEFAULT 0
            );
            CREATE INDEX [Index_Time] ON [nsb].[dbo].[delayed] ([Time]);
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
END;

-- name: create_queue
IF OBJECT_ID(N'[nsb].[dbo].[queue]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[queue]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[queue] (
                Id uniqueidentifier NOT NULL,
                CorrelationId varchar(255),
                ReplyToAddress varchar(255),
                Recoverable bit NOT NULL,
                Expires datetime,
                Headers nvarchar(max) NOT NULL,
                Body varbinary(max),
                RowVersion bigint IDENTITY(1,1) NOT NULL
            );
            CREATE NONCLUSTERED INDEX [Index_RowVersion] ON [nsb].[dbo].[queue] ([RowVersion] ASC);
            CREATE NONCLUSTERED INDEX [Index_Expires] ON [nsb].[dbo].[queue] ([Expires]) INCLUDE ([Id], [RowVersion])
                WHERE [Expires] IS NOT NULL;
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[queue]_lock', @LockOwner = 'Session';
END;

-- name: create_subscriptions
IF OBJECT_ID(N'[nsb].[dbo].[subscriptions]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[subscriptions]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[subscriptions]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[subscriptions] (
                QueueAddress nvarchar(200) NOT NULL,
                Endpoint nvarchar(200) NOT NULL,
                Topic nvarchar(200) NOT NULL,
                PRIMARY KEY CLUSTERED (Endpoint, Topic)
            );
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[subscriptions]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[subscriptions]_lock', @LockOwner = 'Session';
END;

-- name: delete_changes
-- sweep_id
DELETE TOP (1000) FROM [nsb].[dbo].[changes] WHERE sweep_id = ?;

-- name: delete_settled
-- sweep_id
DELETE TOP (1000) FROM [nsb].[dbo].[journal] WHERE sweep_id = ?;

-- name: delete_sweep
-- lease, sweep_id
DELETE FROM [nsb].[dbo].[leases] WHERE name = ?;
DELETE FROM [nsb].[dbo].[sweeps] WHERE sweep_id = ?;

-- name: describe_catalog
-- catalog, catalog
SELECT CASE WHEN DB_ID(?) IS NULL THEN 0 ELSE 1 END AS found,
       COALESCE(HAS_DBACCESS(?), 0) AS is_open;

-- name: describe_delayed
-- name
SELECT s.is_real AS deletes_expressions,
       CASE WHEN s.is_real = 1 AND EXISTS (
           SELECT 1
           FROM sys.indexes i
           JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
           JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
           WHERE i.object_id = OBJECT_ID(?) AND i.is_disabled = 0 AND i.has_filter = 0
             AND i.type IN (1, 2) AND ic.key_ordinal = 1 AND LOWER(QUOTENAME(c.name)) = LOWER(N'[Due]')
       ) THEN 1 ELSE 0 END AS seeks
FROM (
    SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS is_real
) s;

-- name: describe_indexes
-- name
SELECT c.name AS column_name, MAX(CASE WHEN i.has_filter = 1 THEN 1 ELSE 0 END) AS is_partial
FROM [nsb].sys.indexes i
JOIN [nsb].sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN [nsb].sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = OBJECT_ID(?) AND i.is_disabled = 0 AND ic.key_ordinal = 1 AND i.type IN (1, 2)
GROUP BY i.index_id, c.name;

-- name: describe_long_name
-- name
SELECT c.name, TYPE_NAME(c.system_type_id) AS type, 'BASE TABLE' AS kind,
       (SELECT CONVERT(nvarchar(200), p.[value])
        FROM [nsb].sys.extended_properties p
        WHERE p.class = 1 AND p.major_id = c.object_id AND p.minor_id = 0 AND p.name = N'duesweep.format') AS mark,
       0 AS policies, NULL AS hook
FROM [nsb].sys.columns c
WHERE c.object_id = OBJECT_ID(?, 'U')
ORDER BY c.column_id;

-- name: describe_rights
-- catalog, local, name
SELECT r.name, USER_NAME() AS grantee,
       CASE WHEN LEN(n.name) > 128 THEN 1 ELSE HAS_PERMS_BY_NAME(n.name, 'OBJECT', r.name) END AS is_granted
FROM (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) r (name)
CROSS JOIN (SELECT CASE WHEN DB_ID(?) = DB_ID() THEN ? ELSE ? END AS name) n;

-- name: describe_server
SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS deletes_expressions;

-- name: describe_session
SELECT CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, DB_NAME() AS database_name,
       CONVERT(nvarchar(60), DATABASEPROPERTYEX(DB_NAME(), 'Updateability')) AS updateability,
       d.compatibility_level, d.is_read_committed_snapshot_on AS is_read_committed_snapshot,
       d.delayed_durability_desc AS delayed_durability
FROM (SELECT 1 AS one) s
LEFT JOIN sys.databases d ON d.name = DB_NAME();

-- name: describe_table
-- schema, table, name, name, schema, table
SELECT c.COLUMN_NAME AS name, c.DATA_TYPE AS type,
       (SELECT t.TABLE_TYPE
        FROM [nsb].INFORMATION_SCHEMA.TABLES t
        WHERE t.TABLE_SCHEMA = ? AND t.TABLE_NAME = ?) AS kind,
       (SELECT CONVERT(nvarchar(200), p.[value])
        FROM [nsb].sys.extended_properties p
        WHERE p.class = 1 AND p.major_id = OBJECT_ID(?, 'U') AND p.minor_id = 0
          AND p.name = N'duesweep.format') AS mark,
       (SELECT COUNT(*) FROM [nsb].sys.objects o WHERE o.type = 'SP') AS policies,
       (SELECT MAX(g.name)
        FROM [nsb].sys.triggers g
        WHERE g.parent_id = OBJECT_ID(?, 'U') AND g.is_instead_of_trigger = 1 AND g.is_disabled = 0) AS hook
FROM [nsb].INFORMATION_SCHEMA.COLUMNS c
WHERE c.TABLE_SCHEMA = ? AND c.TABLE_NAME = ?
ORDER BY c.ORDINAL_POSITION;

-- name: doctor_clock
SELECT SYSUTCDATETIME() AS now;

-- name: doctor_references
-- name
SELECT f.name, OBJECT_NAME(f.parent_object_id) AS [table]
FROM sys.foreign_keys f
WHERE f.referenced_object_id = OBJECT_ID(?) AND f.delete_referential_action = 0
ORDER BY f.name;

-- name: doctor_waiting
-- most
SELECT TOP (CONVERT(int, ?)) m.Headers AS headers, CONVERT(nvarchar(200), NULL) AS destination
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Due] IS NOT NULL
ORDER BY m.[Due];

-- name: drop_old_pauses
-- source
DELETE p FROM [nsb].[dbo].[pauses] p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.source = ? AND p.until_at <= SYSUTCDATETIME();

-- name: dropped_sources
SELECT b.source, b.delayed, (SELECT COUNT(*) FROM [nsb].[dbo].[sweeps] s WHERE s.source = b.source) AS unsettled
FROM [nsb].[dbo].[bindings] b
WHERE OBJECT_ID(b.delayed, 'U') IS NULL
ORDER BY b.source;

-- name: due_destinations
-- horizon, since, paused, paused, source
SELECT TOP (100) oldest.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT TOP (10000) CONVERT(nvarchar(200), NULL) AS destination
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
      AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
      AND CONVERT(nvarchar(200), NULL) <> N''
      AND (? = N'[]' OR NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
        WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
      ))
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
    ORDER BY m.[Due]
) oldest
GROUP BY oldest.destination
ORDER BY messages DESC, oldest.destination;

-- name: estimate_rows
-- name
SELECT COALESCE(SUM(p.rows), 0) AS rows
FROM sys.partitions p
WHERE p.object_id = OBJECT_ID(?) AND p.index_id IN (0, 1);

-- name: exhausted_pieces
-- piece_bytes, sweep_id
SELECT MIN(m.id) AS first_id, MAX(m.id) AS last_id
FROM (
    SELECT s.id,
           (SUM(s.bytes) OVER (ORDER BY s.id ROWS UNBOUNDED PRECEDING) - s.bytes) / ? AS piece
    FROM (
        SELECT j.id,
               CONVERT(bigint, 1000 + COALESCE(DATALENGTH(j.headers_text), 0)
                   + COALESCE(DATALENGTH(j.headers), 0) + COALESCE(DATALENGTH(j.body), 0)
                   + COALESCE(DATALENGTH(j.error_text), 0) + COALESCE(DATALENGTH(j.stack), 0)) AS bytes
        FROM [nsb].[dbo].[journal] j
        WHERE j.sweep_id = ? AND j.kind = 'exhausted'
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: explain_unclaimed
-- dues, sweep_id, source, excluded, separator
SELECT t.due, here.present, failures.waiting, failures.failed_since
FROM (
    SELECT TOP (2147483647) j.due, CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due') j
) t
CROSS JOIN (SELECT started_at FROM [nsb].[dbo].[sweeps] WHERE sweep_id = ?) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS present
    FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
    WHERE m.[Due] = t.tick
) here
CROSS APPLY (
    SELECT COUNT_BIG(*) AS waiting,
           COUNT_BIG(k.is_new) AS failed_since
    FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
    CROSS APPLY (SELECT CASE WHEN a.last_failed_at >= s.started_at THEN 1 END AS is_new) k
    WHERE a.source = ? AND a.due_at = CONVERT(datetime2(7), t.due, 121)
      AND a.next_attempt_at > SYSUTCDATETIME()
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) p
        WHERE p.[value] = a.message_key COLLATE DATABASE_DEFAULT
      )
) failures;

-- name: failure_reasons
-- most, sweep_id, sweep_id
SELECT TOP (CONVERT(int, ?)) f.reason, COUNT(*) AS messages, MIN(f.destination) AS destination
FROM (
    SELECT LEFT(j.error_text, 500) AS reason, LEFT(j.destination, 400) AS destination
    FROM [nsb].[dbo].[journal] j
    WHERE j.sweep_id = ? AND j.kind = 'exhausted'
    UNION ALL
    SELECT LEFT(a.error_text, 500), LEFT(a.destination, 400)
    FROM [nsb].[dbo].[sweeps] s
    JOIN [nsb].[dbo].[attempts] a ON a.source = s.source
        AND a.last_failed_at BETWEEN DATEADD(millisecond, -1, s.started_at) AND DATEADD(millisecond, 1, s.closed_at)
    WHERE s.sweep_id = ?
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason;

-- name: fence
-- lock, sweep_id
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       CASE WHEN s.stop_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_stopping,
       CASE WHEN EXISTS (SELECT 1 FROM [nsb].[dbo].[pauses] p WITH (NOLOCK) WHERE p.source = s.source)
            THEN 1 ELSE 0 END AS has_pauses,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM [nsb].[dbo].[sweeps] s WITH (NOLOCK)
WHERE s.sweep_id = ?;

-- name: fence_or_end
-- lock, sweep_id
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
DECLARE @IsOpen int = (
    SELECT COUNT(*) FROM [nsb].[dbo].[sweeps] s WITH (NOLOCK)
    WHERE s.sweep_id = ? AND s.closed_at IS NULL AND @Answer >= 0
);
SELECT @IsOpen AS is_open;
IF @IsOpen = 0
BEGIN
    ROLLBACK TRANSACTION;
    SET XACT_ABORT OFF;
    RETURN;
END;

-- name: fetch_next_due
-- source
SELECT TOP (1) l.message_key, CAST(CONVERT(datetime2(7), l.due) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS instant_us,
       l.headers, l.body, l.destination, l.attempts
FROM (
    SELECT TOP (1600) CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, m.[Due] AS due, m.Headers AS headers,
           m.[Body] AS body, CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE m.[Due] < GETUTCDATE()
    ORDER BY m.[Due]
) l
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ?
      AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY l.due;

-- name: find
-- with_body, keys, separator
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us,
       m.Headers AS headers, CASE WHEN ? = 1 THEN m.[Body] END AS body,
       CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts,
       COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[RowVersion] IN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: find_gone_attempts
-- source
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
    WHERE a.source = ? AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[delayed] d WITH (NOLOCK)
        WHERE d.[Due] = CAST(a.due_at AS datetime) AND d.[RowVersion] = CONVERT(bigint, a.message_key)
      )
) THEN 1 ELSE 0 END AS found;

-- name: find_pending
-- horizon, since, paused, paused, source
SELECT TOP (1) CONVERT(datetime2(7), m.[Due]) AS due
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime) AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND (? = N'[]' OR NOT EXISTS (
    SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
    WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
  ))
  AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY m.[Due];

-- name: find_table
-- name
SELECT CASE WHEN OBJECT_ID(?, 'U') IS NULL THEN 0 ELSE 1 END AS found;

-- name: follow_rescheduled
-- source
UPDATE a
SET due_at = d.[Due]
FROM [nsb].[dbo].[attempts] a
JOIN [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK)
  ON d.[RowVersion] = CONVERT(bigint, a.message_key)
WHERE a.source = ? AND (a.due_at IS NULL OR a.due_at <> d.[Due]);

-- name: forget_attempts
-- source
DELETE TOP (1000) FROM [nsb].[dbo].[attempts] WHERE source = ?;

-- name: forget_limits
-- source
DELETE FROM [nsb].[dbo].[limits] WHERE source = ?;

-- name: forget_pauses
-- source
DELETE FROM [nsb].[dbo].[pauses] WHERE source = ?;

-- name: free
-- source
UPDATE [nsb].[dbo].[bindings]
SET ledger_id = '00000000-0000-0000-0000-000000000000', settled_sweep = NULL, settled_at = NULL
WHERE source = ?;

-- name: give_lease_back
-- name, holder
DELETE FROM [nsb].[dbo].[leases]
WHERE name = ? AND holder = ? OR until_at < DATEADD(day, -1, SYSUTCDATETIME());

-- name: gone_counters
-- most, source
SELECT TOP (?) a.message_key
FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
WHERE a.source = ? AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[delayed] d WITH (NOLOCK)
    WHERE d.[RowVersion] = CONVERT(bigint, a.message_key)
)
ORDER BY a.message_key;

-- name: hidden_tables
-- schema
SELECT t.name AS [table], ps.name AS policy_schema, p.name AS policy,
       MAX(CASE WHEN d.predicate_type = 0 THEN 1 ELSE 0 END) AS is_filtered
FROM [nsb].sys.security_predicates d
JOIN [nsb].sys.security_policies p ON p.object_id = d.object_id
JOIN [nsb].sys.schemas ps ON ps.schema_id = p.schema_id
JOIN [nsb].sys.objects t ON t.object_id = d.target_object_id
JOIN [nsb].sys.schemas s ON s.schema_id = t.schema_id
WHERE p.is_enabled = 1 AND s.name = ?
GROUP BY t.name, ps.name, p.name
ORDER BY t.name;

-- name: hold
-- messages
SELECT CONVERT(nvarchar(250), m.[RowVersion]) AS message_key,
       CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
       DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
       DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us, m.Headers AS headers,
       m.[Body] AS body, CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts
FROM (
    SELECT TOP (2147483647) CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
        due varchar(27) '$.due', message_key bigint '$.key'
    ) j
) t
JOIN [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.[Due] = t.tick AND m.[RowVersion] = t.message_key;

-- name: hold_by_id
-- keys, separator
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us,
       m.Headers AS headers, m.[Body] AS body, CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
WHERE m.[RowVersion] IN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: horizon
SELECT CONVERT(datetime2(7), GETUTCDATE()) AS horizon;

-- name: insert_message
-- id, headers, body
INSERT INTO [nsb].[dbo].[queue] (Id, Headers, Body) VALUES (?, ?, ?);

-- name: insert_recoverable_message
-- id, headers, body
INSERT INTO [nsb].[dbo].[queue] (Id, Recoverable, Headers, Body) VALUES (?, 1, ?, ?);

-- name: journal_batch
-- sweep_id, slice, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
INSERT INTO [nsb].[dbo].[journal] (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    ?, ?, 'batch', ?, ?, ?, ?,
    CONVERT(varbinary(max), ?), CONVERT(varbinary(max), ?)
);

-- name: journal_cancelled
-- sweep_id, changed_us, message_key, message_id, message_type, destination, due_before_us, attempts, body_bytes, headers, headers_text, body
INSERT INTO [nsb].[dbo].[changes] (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, headers_text, body
) VALUES (
    ?, 'cancelled', ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, CONVERT(varbinary(max), ?)
);

-- name: journal_changes
-- sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us, due_after_us, undone, new_key, attempts, body_bytes
INSERT INTO [nsb].[dbo].[changes] (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, [of], new_key, attempts, body_bytes
) VALUES (
    ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?
);

-- name: journal_exhausted
-- sweep_id, slice, message_key, message_id, message_type, destination, queue, due_us, dispatched_us, attempts, source, message_key, dispatched_us, error_class, error_text, stack, headers, headers_text, body
INSERT INTO [nsb].[dbo].[journal] (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due_us,
    dispatched_us, attempts, first_failed_us, error_class, error_text, stack, headers, headers_text,
    body
)
SELECT ?, ?, 'exhausted', ?, ?, ?, ?, ?,
       ?, ?, ?,
       COALESCE((
           SELECT DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at)
           FROM [nsb].[dbo].[attempts] a
           WHERE a.source = ? AND a.message_key = ?
       ), ?),
       ?, ?, ?, ?, ?, CONVERT(varbinary(max), ?);

-- name: journal_slice
-- sweep_id, slice, given, claimed, skipped, gone, later, held, left, reason, breakers, careful_batches
INSERT INTO [nsb].[dbo].[journal] (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, [left], reason, breakers, error_text
) VALUES (
    ?, ?, 'slice', ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?
);

-- name: keep_place
-- place, source
UPDATE [nsb].[dbo].[bindings]
SET place = ?,
    settled_sweep = CASE WHEN place IS NOT NULL THEN settled_sweep END,
    settled_at = CASE WHEN place IS NOT NULL THEN settled_at END
WHERE source = ?;

-- name: last_message
SELECT COALESCE(MAX(q.RowVersion), 0) AS number FROM [nsb].[dbo].[queue] q WITH (READPAST, READCOMMITTEDLOCK);

-- name: lateness
-- sweep_id
SELECT j.lateness_ms
FROM [nsb].[dbo].[journal] j
WHERE j.sweep_id = ? AND j.kind = 'batch' AND j.outcomes IS NOT NULL
ORDER BY j.id;

-- name: list_subscribers
-- topic
SELECT DISTINCT QueueAddress AS queue_address FROM [nsb].[dbo].[subscriptions] WHERE Topic = ?;

-- name: lock_sweep_counters
-- lock, sweep_id
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT @Answer AS answer, s.exhausted FROM [nsb].[dbo].[sweeps] s WHERE s.sweep_id = ?;

-- name: locked_rows
-- horizon, horizon
SELECT everything.messages - visible.messages AS messages, CONVERT(datetime2(7), everything.due) AS due,
       NULL AS holder, NULL AS since
FROM (
    SELECT COUNT_BIG(*) AS messages, MIN(m.due) AS due
    FROM (
        SELECT TOP (10000) m.[Due] AS due FROM [nsb].[dbo].[delayed] m WITH (NOLOCK) WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Due]
    ) m
) everything
CROSS JOIN (
    SELECT COUNT_BIG(*) AS messages
    FROM (
        SELECT TOP (10000) m.[Due] AS due FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
        WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Due]
    ) m
) visible;

-- name: look
-- first, end, end, end
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, CONVERT(nvarchar(200), NULL) AS destination,
       0 AS attempts, COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND m.[Due] <= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('99991231 23:59:59.997' AS datetime))
  AND (CAST(CONVERT(datetime2(7), ?, 121) AS datetime) IS NULL OR m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime))
ORDER BY m.[Due]
OPTION (FAST 1000);

-- name: look_at_sweep
-- sweep_id
DECLARE @Answer int = 0;
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       CASE WHEN s.stop_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_stopping,
       CASE WHEN EXISTS (SELECT 1 FROM [nsb].[dbo].[pauses] p WITH (NOLOCK) WHERE p.source = s.source)
            THEN 1 ELSE 0 END AS has_pauses,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM [nsb].[dbo].[sweeps] s WITH (NOLOCK)
WHERE s.sweep_id = ?;

-- name: look_timeless
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CONVERT(varchar(27), NULL) AS due,
       CONVERT(bigint, NULL) AS due_us, CONVERT(bigint, NULL) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, CONVERT(nvarchar(200), NULL) AS destination,
       0 AS attempts, COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Due] IS NULL;

-- name: measure_unsettled
-- source
SELECT COALESCE(SUM(held.messages), 0) AS messages, COALESCE(SUM(held.bytes), 0) AS bytes,
       COUNT(DISTINCT s.sweep_id) AS sweeps
FROM [nsb].[dbo].[sweeps] s
LEFT JOIN (
    SELECT j.sweep_id,
           CONVERT(bigint, COALESCE(j.dispatched, 0)) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END AS messages,
           CONVERT(bigint, COALESCE(DATALENGTH(j.outcomes), 0)) + COALESCE(DATALENGTH(j.body), 0)
               + COALESCE(DATALENGTH(j.headers_text), 0) AS bytes
    FROM [nsb].[dbo].[journal] j
    UNION ALL
    SELECT c.sweep_id, CONVERT(bigint, 1),
           CONVERT(bigint, COALESCE(DATALENGTH(c.body), 0)) + COALESCE(DATALENGTH(c.headers_text), 0)
    FROM [nsb].[dbo].[changes] c
) held ON held.sweep_id = s.sweep_id
WHERE s.source = ?;

-- name: move_recoverable_span
-- cut, cut, keys, separator, messages
INSERT INTO [nsb].[dbo].[queue] (Id, Recoverable, Headers, Body)
SELECT NEWID(), 1, CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[Body]
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[RowVersion]
WHERE m.[Due] >= @First AND m.[Due] <= @Last
ORDER BY m.[Due]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;

-- name: move_span
-- cut, cut, keys, separator, messages
INSERT INTO [nsb].[dbo].[queue] (Id, Headers, Body)
SELECT NEWID(), CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[Body]
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[RowVersion]
WHERE m.[Due] >= @First AND m.[Due] <= @Last
ORDER BY m.[Due]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;

-- name: name_journal
-- journal_id, source
UPDATE [nsb].[dbo].[bindings] SET journal_id = ? WHERE source = ? AND journal_id IS NULL;

-- name: next_due
-- since
SELECT (
    SELECT CONVERT(datetime2(7), MIN(m.[Due]))
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
) AS due;

-- name: note_settled
-- sweep_id
UPDATE b
SET settled_sweep = s.sweep_id, settled_at = s.closed_at
FROM [nsb].[dbo].[bindings] b
JOIN [nsb].[dbo].[sweeps] s ON s.source = b.source
WHERE s.sweep_id = ?
  AND (b.settled_at IS NULL OR b.settled_at <= s.closed_at)
  AND (s.command IS NULL OR EXISTS (SELECT 1 FROM [nsb].[dbo].[changes] c WHERE c.sweep_id = s.sweep_id));

-- name: open_command
-- sweep_id, source, horizon, command, given_by, given_reason
INSERT INTO [nsb].[dbo].[sweeps] (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (?, ?, CONVERT(datetime2(7), ?, 121), ?, ?, ?);

-- name: open_sweep
-- sweep_id, source, horizon, engine, attempts_changed
INSERT INTO [nsb].[dbo].[sweeps] (sweep_id, source, horizon, engine, attempts_changed)
VALUES (?, ?, CONVERT(datetime2(7), ?, 121), ?, ?);

-- name: orphaned_journal
SELECT LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id
FROM (
    SELECT sweep_id FROM [nsb].[dbo].[journal] WITH (NOLOCK)
    UNION
    SELECT sweep_id FROM [nsb].[dbo].[changes] WITH (NOLOCK)
) j
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[sweeps] s WITH (NOLOCK) WHERE s.sweep_id = j.sweep_id);

-- name: pause
-- until, given_by, reason, source, pattern, source, pattern, until, given_by, reason, source, pattern
UPDATE [nsb].[dbo].[pauses] WITH (UPDLOCK, HOLDLOCK)
SET paused_at = SYSUTCDATETIME(), until_at = CONVERT(datetime2(3), ?, 121), given_by = ?,
    reason = ?
WHERE source = ? AND pattern = ?;
INSERT INTO [nsb].[dbo].[pauses] (source, pattern, until_at, given_by, reason)
SELECT ?, ?, CONVERT(datetime2(3), ?, 121), ?, ?
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[pauses] p WITH (UPDLOCK, HOLDLOCK) WHERE p.source = ? AND p.pattern = ?
);

-- name: peek
-- batch
SELECT COUNT(*) AS messages
FROM (
    SELECT TOP (?) RowVersion FROM [nsb].[dbo].[queue] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
) AS Waiting;

-- name: plan_bounds
-- most_rows, most_rows, slices, least_rows, slices, least_rows, horizon, since, paused, paused, source
SELECT CAST(CONVERT(datetime2(7), sliced.due) AS varchar(27)) AS due,
       CONVERT(nvarchar(250), sliced.message_key) AS place, sliced.total, sliced.size
FROM (
    SELECT useful.due, useful.message_key, useful.position, useful.total,
           (useful.total - 1) / CASE WHEN useful.slices < (useful.total - 1) / ? + 1
                                     THEN (useful.total - 1) / ? + 1 ELSE useful.slices END + 1 AS size
    FROM (
        SELECT pending.due, pending.message_key, pending.position, pending.total,
               CASE WHEN ? < (pending.total - 1) / ? + 1
                    THEN ? ELSE (pending.total - 1) / ? + 1 END AS slices
        FROM (
            SELECT m.[Due] AS due, m.[RowVersion] AS message_key,
                   ROW_NUMBER() OVER (ORDER BY m.[Due], m.[RowVersion]) - 1 AS position,
                   COUNT_BIG(*) OVER () AS total
            FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
              AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
              AND (? = N'[]' OR NOT EXISTS (
                SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
                WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
              ))
              AND NOT EXISTS (
                SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
                WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
                  AND a.next_attempt_at > SYSUTCDATETIME()
              )
        ) pending
    ) useful
) sliced
WHERE sliced.position % sliced.size = 0 OR sliced.position = sliced.total - 1
ORDER BY sliced.position;

-- name: plan_claim_keys
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.chunk
FROM (VALUES <sql>) AS s (slice, first_due, first_key, end_due, end_key)
OUTER APPLY (
    SELECT STRING_AGG(CONVERT(varchar(max), CAST(CONVERT(datetime2(7), k.due) AS varchar(27))), ',')
               WITHIN GROUP (ORDER BY k.position) AS claim_keys,
           STRING_AGG(CONVERT(varchar(max), k.bytes), ',')
               WITHIN GROUP (ORDER BY k.position) AS sizes,
           SUM(COUNT_BIG(*)) OVER () AS total,
           k.position / CONVERT(bigint, <sql>) AS chunk
    FROM (
        SELECT pending.due, pending.bytes,
               ROW_NUMBER() OVER (ORDER BY pending.due, pending.message_key) - 1 AS position
        FROM (
            SELECT TOP (CONVERT(bigint, <sql>)) m.[Due] AS due, m.[RowVersion] AS message_key,
                   COALESCE(DATALENGTH(m.Headers), 0) + COALESCE(DATALENGTH(m.[Body]), 0) AS bytes
            FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.[Due] < CAST(CONVERT(datetime2(7), N'', 121) AS datetime)
              AND m.[Due] >= s.first_due AND m.[Due] <= s.end_due
              AND (m.[Due] > s.first_due OR m.[RowVersion] >= s.first_key)
              AND (m.[Due] < s.end_due OR m.[RowVersion] < s.end_key)
              AND (<sql> = N'[]' OR NOT EXISTS (
                SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), <sql>)) WITH (fits nvarchar(max) '$') p
                WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
              ))
              AND NOT EXISTS (
                SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
                WHERE a.source = N'' AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
                  AND a.next_attempt_at > SYSUTCDATETIME()
              )
        ) pending
    ) k
    GROUP BY k.position / CONVERT(bigint, <sql>)
) chunk

-- name: postpone_attempts
-- new_due, new_due, source, message_key
UPDATE [nsb].[dbo].[attempts]
SET next_attempt_at = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), due_at = CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
WHERE source = ? AND message_key = ?;

-- name: probe_queue
INSERT INTO [nsb].[dbo].[queue] (Id, Headers) SELECT q.Id, q.Headers FROM [nsb].[dbo].[queue] q WHERE 1 = 0;

-- name: progress
-- sweep_id
SELECT COUNT_BIG(CASE WHEN j.kind = 'batch' THEN 1 END) AS batches,
       COALESCE(SUM(CONVERT(bigint, j.dispatched)), 0) AS dispatched,
       COALESCE(SUM(CONVERT(bigint, j.failed)), 0)
           + COUNT_BIG(CASE WHEN j.kind = 'exhausted' THEN 1 END) AS failed
FROM [nsb].[dbo].[journal] j WITH (READPAST, READCOMMITTEDLOCK)
WHERE j.sweep_id = ?;

-- name: prune_attempts
-- source
DELETE TOP (1000) FROM [nsb].[dbo].[attempts] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE source = ?
  AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[delayed] d
    WHERE d.[Due] = CAST(due_at AS datetime) AND d.[RowVersion] = CONVERT(bigint, message_key)
  );

-- name: purge
-- batch
DELETE TOP (?) FROM [nsb].[dbo].[queue] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK);

-- name: purge_expired
-- batch
DELETE TOP (?) FROM [nsb].[dbo].[queue] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE Expires < GETUTCDATE();

-- name: queue_indexes
SELECT s.name AS [schema], t.name AS [table], LOWER(c.name) AS column_name
FROM sys.indexes i
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
JOIN sys.tables t ON t.object_id = i.object_id
JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE i.is_disabled = 0 AND i.type IN (1, 2) AND ic.key_ordinal = 1
  AND (LOWER(c.name) = 'expires' OR (LOWER(c.name) = 'rowversion' AND i.has_filter = 0));

-- name: queue_tables
SELECT c.TABLE_SCHEMA AS [schema], c.TABLE_NAME AS [table],
       MAX(CASE WHEN c.COLUMN_NAME = 'Recoverable' THEN 1 ELSE 0 END) AS has_recoverable,
       MAX(CASE WHEN c.COLUMN_NAME = 'Headers' AND c.DATA_TYPE = 'varchar' THEN 1 ELSE 0 END) AS is_narrow
FROM INFORMATION_SCHEMA.COLUMNS c
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

-- name: raise_attempts
-- attempts, destination, due, retry_ms, retry_seconds, error_class, error_text, source, message_key, source, message_key, message_id, destination, due, attempts, retry_ms, retry_seconds, error_class, error_text
SET NOCOUNT ON;
UPDATE [nsb].[dbo].[attempts]
SET attempts = ?,
    destination = ?,
    due_at = CONVERT(datetime2(7), ?, 121),
    last_failed_at = SYSUTCDATETIME(),
    next_attempt_at = DATEADD(
        millisecond, ?, DATEADD(second, ?, SYSUTCDATETIME())
    ),
    error_class = ?,
    error_text = ?
WHERE source = ? AND message_key = ?;
IF @@ROWCOUNT = 0
INSERT INTO [nsb].[dbo].[attempts] (
    source, message_key, message_id, destination, due_at, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
) VALUES (
    ?, ?, ?, ?, CONVERT(datetime2(7), ?, 121), ?,
    SYSUTCDATETIME(), SYSUTCDATETIME(),
    DATEADD(millisecond, ?, DATEADD(second, ?, SYSUTCDATETIME())),
    ?, ?
);
SET NOCOUNT OFF;

-- name: raise_retry_counts
-- keys, separator
UPDATE [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET RetryCount = RetryCount + 1
WHERE [RowVersion] IN (
    SELECT k.[value] COLLATE DATABASE_DEFAULT FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: read_attempts
-- keys, separator, source
SELECT a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
JOIN [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
  ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: read_batches
-- sweep_id, after_id, sweep_id, messages, messages
SELECT j.id, j.outcomes
FROM (
    SELECT b.id, b.outcomes, ROW_NUMBER() OVER (ORDER BY b.id) AS position
    FROM [nsb].[dbo].[journal] b
    WHERE b.sweep_id = ? AND b.kind = 'batch' AND b.outcomes IS NOT NULL AND b.id > ?
) j
CROSS JOIN (
    SELECT MAX(m.dispatched) AS longest
    FROM [nsb].[dbo].[journal] m
    WHERE m.sweep_id = ? AND m.kind = 'batch'
) l
WHERE j.position <= CASE WHEN l.longest > 0 AND ? / l.longest > 1 THEN ? / l.longest ELSE 1 END
ORDER BY j.id;

-- name: read_binding
-- source
SELECT found.delayed, LOWER(CONVERT(varchar(36), found.ledger_id)) AS ledger_id, found.bound_at,
       LOWER(CONVERT(varchar(36), found.journal_id)) AS journal_id,
       LOWER(CONVERT(varchar(36), found.settled_sweep)) AS settled_sweep, found.settled_at, found.place
FROM (
    SELECT CONVERT(uniqueidentifier, NULL) AS journal_id, CONVERT(uniqueidentifier, NULL) AS settled_sweep,
           CONVERT(datetime2(3), NULL) AS settled_at, CONVERT(nvarchar(max), NULL) AS place
) lacking
CROSS APPLY (
    SELECT delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place
    FROM [nsb].[dbo].[bindings]
    WHERE source = ?
) found;

-- name: read_changes
-- sweep_id, first_id, last_id
SELECT c.id, LOWER(CONVERT(varchar(36), c.sweep_id)) AS sweep_id, s.command, c.change,
       c.changed_us AS changed_at, s.given_by, s.given_reason AS reason, c.message_key, c.message_id,
       c.message_type, c.destination, c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue,
       c.[of], c.new_key, c.attempts, c.headers, c.headers_text, c.body, c.body_bytes
FROM [nsb].[dbo].[changes] c
JOIN [nsb].[dbo].[sweeps] s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = ? AND c.id BETWEEN ? AND ?
ORDER BY c.id;

-- name: read_command
-- sweep_id
SELECT s.command, s.given_by, s.given_reason, CASE WHEN EXISTS (
    SELECT 1 FROM [nsb].[dbo].[changes] c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) THEN 1 ELSE 0 END AS attempts_changed
FROM [nsb].[dbo].[sweeps] s
WHERE s.sweep_id = ? AND s.command IS NOT NULL;

-- name: read_exhausted
-- sweep_id, first_id, last_id
SELECT j.id, LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id, j.message_key, j.message_id,
       j.message_type, j.destination, j.queue, j.due_us AS due, j.dispatched_us AS dispatched_at,
       (j.dispatched_us - j.due_us) / 1000 AS lateness_ms, j.attempts,
       CONVERT(bigint, COALESCE(DATALENGTH(j.body), 0)) AS body_bytes,
       j.first_failed_us AS first_failed_at, j.dispatched_us AS last_failed_at, j.error_class, j.error_text, j.stack,
       j.headers, j.headers_text, j.body
FROM [nsb].[dbo].[journal] j
WHERE j.sweep_id = ? AND j.kind = 'exhausted' AND j.id BETWEEN ? AND ?
ORDER BY j.id;

-- name: read_failures
-- keys, separator, source
SELECT a.message_key, a.attempts,
       a.next_attempt_at, a.error_text
FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
JOIN [nsb].[dbo].[attempts] a WITH (NOLOCK)
  ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: read_lease
-- name
SELECT LOWER(CONVERT(varchar(36), l.holder)) AS holder, l.process, l.mark, l.taken_at
FROM [nsb].[dbo].[leases] l WITH (NOLOCK)
WHERE l.name = ? AND l.until_at > SYSUTCDATETIME();

-- name: read_lists
-- words, numbers
SELECT STRING_AGG(j.[value], N',') AS joined, (SELECT COUNT(*) FROM STRING_SPLIT(?, ',')) AS words
FROM OPENJSON(?) j;

-- name: read_pauses
-- source
SELECT p.pattern, p.paused_at, p.until_at, p.given_by, p.reason
FROM [nsb].[dbo].[pauses] p WITH (NOLOCK)
WHERE p.source = ? AND (p.until_at IS NULL OR p.until_at > SYSUTCDATETIME())
ORDER BY p.pattern;

-- name: read_retries
-- most, source, after, after
SELECT TOP (?) a.message_key, a.message_id, a.destination, a.attempts,
       DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at) AS first_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.last_failed_at) AS last_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.next_attempt_at) AS next_attempt_at,
       a.error_class, a.error_text
FROM [nsb].[dbo].[attempts] a
WHERE a.source = ? AND (? IS NULL OR a.message_key > ?)
ORDER BY a.message_key;

-- name: read_slice
SELECT claim_keys, sizes, total FROM (<sql>) AS due_messages WHERE slice = <sql> ORDER BY chunk;

-- name: read_slice_ends
-- sweep_id
SELECT slice, given, claimed, skipped, gone, later, held, [left], reason, breakers,
       error_text AS careful_batches
FROM [nsb].[dbo].[journal]
WHERE sweep_id = ? AND kind = 'slice'
ORDER BY id;

-- name: read_some_attempts
-- most, source
SELECT TOP (?) a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = ?;

-- name: read_span
-- most
SELECT TOP (?) CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due, m.Headers AS headers,
       CONVERT(nvarchar(200), NULL) AS destination, COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE m.[Due] >= @First AND m.[Due] <= @Last;

-- name: read_sweep
-- sweep_id
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM [nsb].[dbo].[sweeps]
WHERE sweep_id = ?;

-- name: receive
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Now datetime = GETUTCDATE();
DELETE q
OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,
    deleted.Expires AS expires, @Now AS utc_now
FROM [nsb].[dbo].[queue] AS q WITH (ROWLOCK)
WHERE q.RowVersion = (
    SELECT TOP (1) RowVersion FROM [nsb].[dbo].[queue] WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: receive_with_columns
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Now datetime = GETUTCDATE();
DELETE q
OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,
    deleted.Expires AS expires, @Now AS utc_now,
    deleted.CorrelationId AS correlation_id, deleted.ReplyToAddress AS reply_to_address
FROM [nsb].[dbo].[queue] AS q WITH (ROWLOCK)
WHERE q.RowVersion = (
    SELECT TOP (1) RowVersion FROM [nsb].[dbo].[queue] WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: refuse_dropped
IF @@ROWCOUNT = 0 THROW 50000, N'the journal did not take a row', 1;

-- name: refuse_failures
-- source
IF EXISTS (SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK) WHERE a.source = ?)
    THROW 50000, N'messages have failed since they were read', 1;

-- name: refuse_new_failures
-- keys, separator, source, failures
DECLARE @Attempts bigint = (
    SELECT COALESCE(SUM(CONVERT(bigint, a.attempts)), 0)
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
    JOIN [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
      ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT
);
IF @Attempts <> ? THROW 50000, N'messages have failed since they were read', 1;

-- name: refuse_triggers
-- tables
DECLARE @Triggers int = (
    SELECT COUNT(*)
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (name nvarchar(max) '$') t
    JOIN sys.triggers g ON g.parent_id = OBJECT_ID(t.name)
    WHERE g.is_disabled = 0
);
IF @Triggers > 0 THROW 50000, N'a table has a trigger', 1;

-- name: remove
-- messages
DELETE d
FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key bigint '$.key'
) k
  ON d.[Due] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[RowVersion] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: remove_any
DELETE TOP (1) FROM [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK);

-- name: remove_by_id
-- keys, separator
DELETE FROM [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [RowVersion] IN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);
SELECT @@ROWCOUNT AS messages;

-- name: remove_first
-- due, rows, source, kept
SET NOCOUNT ON;
DECLARE @Gone TABLE (message_key nvarchar(250));
DECLARE @Tick datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);
WITH firsts AS (
    SELECT TOP (?) m.[RowVersion]
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.[Due] = @Tick
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ?
          AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (message_key bigint '$') k
        WHERE k.message_key = m.[RowVersion]
      )
)
DELETE firsts OUTPUT deleted.[RowVersion] INTO @Gone FROM firsts;
SET NOCOUNT OFF;
SELECT g.message_key FROM @Gone g;

-- name: remove_span
-- most, messages
DELETE TOP (?) FROM [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [Due] >= @First AND [Due] <= @Last;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;

-- name: renew_leases
-- lease_ms, holder
UPDATE [nsb].[dbo].[leases] SET until_at = DATEADD(millisecond, CONVERT(int, ?), SYSUTCDATETIME())
WHERE holder = ?;

-- name: reschedule
-- messages
UPDATE d
SET [Due] = CAST(CONVERT(datetime2(7), k.new_due, 121) AS datetime)
FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key bigint '$.key', new_due varchar(27) '$.new_due'
) k
  ON d.[Due] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[RowVersion] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: reschedule_by_id
-- new_due, message_key
UPDATE [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET [Due] = CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
WHERE [RowVersion] = CONVERT(bigint, ?);
SELECT @@ROWCOUNT AS messages;

-- name: reserve
-- seconds, source, pattern, source, pattern, source, pattern, source, pattern
DECLARE @Now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
DECLARE @Length bigint = CONVERT(bigint, CONVERT(float, ?) * 1000000);
DECLARE @Latest bigint = @Now + CASE WHEN @Length > 100000 THEN 100 * @Length ELSE 10000000 END;
INSERT INTO [nsb].[dbo].[limits] (source, pattern, free_us)
SELECT ?, ?, @Now
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[limits] l WITH (UPDLOCK, HOLDLOCK) WHERE l.source = ? AND l.pattern = ?
);
UPDATE [nsb].[dbo].[limits] WITH (UPDLOCK)
SET free_us = CASE WHEN free_us > @Latest THEN @Latest WHEN free_us > @Now THEN free_us ELSE @Now END + @Length
WHERE source = ? AND pattern = ?;
SELECT CASE WHEN l.free_us - @Length > @Now THEN (l.free_us - @Length - @Now) / 1000000.0 ELSE 0.0 END
           AS wait_seconds
FROM [nsb].[dbo].[limits] l
WHERE l.source = ? AND l.pattern = ?;

-- name: resume
-- source, pattern
DELETE FROM [nsb].[dbo].[pauses] WHERE source = ? AND pattern = ?;

-- name: seal
-- sweep_id
UPDATE [nsb].[dbo].[sweeps]
SET sealed_at = SYSUTCDATETIME()
WHERE sweep_id = ? AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: seek_and_remove_span
-- most, messages
WITH span AS (
    SELECT TOP (?) m.[RowVersion]
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE m.[Due] >= @First AND m.[Due] <= @Last
)
DELETE FROM span;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;

-- name: send
-- seconds, milliseconds, id, headers, body
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Seconds int = ?, @Milliseconds int = ?;
INSERT INTO [nsb].[dbo].[queue] (Id, Expires, Headers, Body)
VALUES (
    ?, DATEADD(ms, @Milliseconds, DATEADD(s, @Seconds, GETUTCDATE())), ?,
    CAST(? AS varbinary(max))
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: send_later
-- milliseconds, seconds, minutes, hours, days, headers, body
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Due datetime = GETUTCDATE();
SET @Due = DATEADD(ms, ?, @Due);
SET @Due = DATEADD(s, ?, @Due);
SET @Due = DATEADD(n, ?, @Due);
SET @Due = DATEADD(hh, ?, @Due);
SET @Due = DATEADD(d, ?, @Due);
INSERT INTO [nsb].[dbo].[delayed] (Headers, Body, Due)
VALUES (?, CAST(? AS varbinary(max)), @Due);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: send_recoverable
-- seconds, milliseconds, id, headers, body
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Seconds int = ?, @Milliseconds int = ?;
INSERT INTO [nsb].[dbo].[queue] (Id, Recoverable, Expires, Headers, Body)
VALUES (
    ?, 1, DATEADD(ms, @Milliseconds, DATEADD(s, @Seconds, GETUTCDATE())), ?,
    CAST(? AS varbinary(max))
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: server_identity
SELECT CONCAT(CONVERT(nvarchar(128), SERVERPROPERTY('ServerName')), N'/', DB_NAME()) AS [identity];

-- name: set_planned
-- planned, horizon, sweep_id
UPDATE [nsb].[dbo].[sweeps] SET planned = ?, horizon = CONVERT(datetime2(7), ?, 121)
WHERE sweep_id = ? AND closed_at IS NULL;

-- name: set_span
-- first, last
DECLARE @First datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), @Last datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);

-- name: similar_tables
-- ending, ending
SELECT TOP (1000) t.TABLE_SCHEMA AS [schema], t.TABLE_NAME AS name
FROM [nsb].INFORMATION_SCHEMA.TABLES t
WHERE t.TABLE_TYPE = 'BASE TABLE' AND RIGHT(t.TABLE_NAME, LEN(?)) = ?
ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME;

-- name: stop_sweep
-- after_ms, sweep_id, after_ms
UPDATE [nsb].[dbo].[sweeps]
SET stop_at = DATEADD(millisecond, CONVERT(int, ?), SYSUTCDATETIME())
WHERE sweep_id = ? AND closed_at IS NULL
  AND (stop_at IS NULL OR stop_at > DATEADD(millisecond, CONVERT(int, ?), SYSUTCDATETIME()));

-- name: store_message
-- headers, body, due
INSERT INTO [nsb].[dbo].[delayed] (Headers, Body, Due)
VALUES (?, CONVERT(varbinary(max), ?), CONVERT(datetime, ?, 121));
SELECT CONVERT(bigint, SCOPE_IDENTITY()) AS message_key;

-- name: store_msmq_message
-- message_key, destination, due, headers, body
INSERT INTO [nsb].[dbo].[delayed] (Id, Destination, Time, Headers, State)
VALUES (
    ?, ?, CONVERT(datetime, ?, 121), CONVERT(varbinary(max), ?),
    CONVERT(varbinary(max), ?)
);

-- name: store_timeout
-- message_key, destination, saga_id, body, due, headers, version
INSERT INTO [nsb].[dbo].[delayed] (Id, Destination, SagaId, State, Time, Headers, PersistenceVersion)
VALUES (
    CONVERT(uniqueidentifier, ?), ?, CONVERT(uniqueidentifier, ?),
    CONVERT(varbinary(max), ?), CONVERT(datetime, ?, 121), ?, ?
);

-- name: stored_destinations
SELECT TOP (1000) stored.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT CONVERT(nvarchar(200), NULL) AS destination
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE CONVERT(nvarchar(200), NULL) <> N'' AND m.[Due] IS NOT NULL
) stored
GROUP BY stored.destination
ORDER BY messages DESC, stored.destination;

-- name: stored_keys
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key FROM [nsb].[dbo].[delayed] m WITH (NOLOCK);

-- name: subscribe
-- queue_address, endpoint, topic
DECLARE @Address nvarchar(200) = ?, @Endpoint nvarchar(200) = ?,
    @Topic nvarchar(200) = ?;
UPDATE [nsb].[dbo].[subscriptions] WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) SET QueueAddress = @Address
WHERE Endpoint = @Endpoint AND Topic = @Topic;
IF @@ROWCOUNT = 0
    INSERT INTO [nsb].[dbo].[subscriptions] (QueueAddress, Endpoint, Topic)
    VALUES (@Address, @Endpoint, @Topic);

-- name: take_lease
-- lease_ms, holder, process, mark, name, holder, other, name, holder, process, mark, name, name, holder
DECLARE @Now datetime2(7) = SYSUTCDATETIME();
DECLARE @Until datetime2(7) = DATEADD(millisecond, CONVERT(int, ?), @Now);
UPDATE [nsb].[dbo].[leases] WITH (UPDLOCK, HOLDLOCK)
SET holder = ?, process = ?, mark = ?, taken_at = @Now, until_at = @Until
WHERE name = ? AND (until_at <= @Now OR holder IN (?, ?));
INSERT INTO [nsb].[dbo].[leases] (name, holder, process, mark, taken_at, until_at)
SELECT ?, ?, ?, ?, @Now, @Until
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[leases] l WITH (UPDLOCK, HOLDLOCK) WHERE l.name = ?);
SELECT 1 AS taken FROM [nsb].[dbo].[leases] l WHERE l.name = ? AND l.holder = ?;

-- name: total_batches
-- sweep_id
SELECT slice,
       SUM(CONVERT(bigint, COALESCE(dispatched, 0))) AS dispatched,
       SUM(CONVERT(bigint, COALESCE(failed, 0))) AS failed,
       SUM(CONVERT(bigint, CASE WHEN kind = 'exhausted' THEN 1 ELSE 0 END)) AS exhausted,
       SUM(COALESCE(body_bytes, 0)) AS bytes,
       MAX(CASE WHEN attempts_changed = 1 OR kind = 'exhausted' THEN 1 ELSE 0 END) AS attempts_changed
FROM [nsb].[dbo].[journal]
WHERE sweep_id = ? AND kind <> 'slice'
GROUP BY slice;

-- name: unbind
-- source
DELETE FROM [nsb].[dbo].[bindings] WHERE source = ?;

-- name: unsettled_sweeps
-- source
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.started_at,
       CASE WHEN s.closed_at IS NULL THEN 0 ELSE 1 END AS is_closed, s.sealed_at, s.command,
       LOWER(CONVERT(varchar(36), l.holder)) AS holder, l.mark
FROM [nsb].[dbo].[sweeps] s
LEFT JOIN [nsb].[dbo].[leases] l WITH (NOLOCK)
    ON l.name = CONCAT(N'sweep ', LOWER(CONVERT(varchar(36), s.sweep_id))) COLLATE DATABASE_DEFAULT
    AND l.until_at > SYSUTCDATETIME()
WHERE s.source = ?
ORDER BY s.started_at;

-- name: unsubscribe
-- endpoint, topic
DELETE FROM [nsb].[dbo].[subscriptions] WITH (ROWLOCK) WHERE Endpoint = ? AND Topic = ?;

-- name: upcoming
-- since, source, since
SELECT (
    SELECT CONVERT(datetime2(7), MIN(m.[Due]))
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
) AS due, COUNT_BIG(*) AS messages, MIN(a.next_attempt_at) AS next_attempt
FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
JOIN [nsb].[dbo].[delayed] m WITH (NOLOCK) ON a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME() AND m.[Due] < COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime));
