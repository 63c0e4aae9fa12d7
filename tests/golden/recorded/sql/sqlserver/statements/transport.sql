-- without a name
COMMIT TRANSACTION

-- without a name
IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET XACT_ABORT OFF

-- without a name
SAVE TRANSACTION duesweep_1

-- without a name
SELECT XACT_STATE()

-- without a name
SET NOCOUNT OFF; BEGIN TRANSACTION

-- without a name
SET XACT_ABORT OFF; SET NOCOUNT OFF; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCK_TIMEOUT 20000; SET DEADLOCK_PRIORITY LOW;

-- without a name
SET XACT_ABORT OFF; SET NOCOUNT OFF; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCK_TIMEOUT 2000; SET DEADLOCK_PRIORITY LOW;

-- name: add_exhausted
-- $1 int, $2 int, $3 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_sweeps] SET exhausted = exhausted + ?, over_limit = over_limit + ?
WHERE sweep_id = ?;

-- name: await_batches
-- $1 nvarchar(max), $2 nvarchar(max)
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 25000;
SELECT CASE WHEN @Answer >= 0 THEN 1 ELSE 0 END AS are_over
FROM [nsb].[dbo].[duesweep_sweeps] s
WHERE s.sweep_id = ? AND s.closed_at IS NULL;

-- name: begin_at_once + fence_or_end + journal_slice + commit_at_once
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 int, $5 int, $6 int, $7 int, $8 int, $9 int, $10 int, $11 int, $12 nvarchar(max), $13 nvarchar(max), $14 nvarchar(max)
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
DECLARE @IsOpen int = (
    SELECT COUNT(*) FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK)
    WHERE s.sweep_id = ? AND s.closed_at IS NULL AND @Answer >= 0
);
SELECT @IsOpen AS is_open;
IF @IsOpen = 0
BEGIN
    ROLLBACK TRANSACTION;
    SET XACT_ABORT OFF;
    RETURN;
END;
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, [left], reason, breakers, error_text
) VALUES (
    ?, ?, 'slice', ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?
);
COMMIT TRANSACTION;
SET XACT_ABORT OFF;

-- name: begin_at_once + fence_or_end + refuse_triggers + set_span + move_recoverable_span + remove_span + refuse_failures + journal_batch + refuse_dropped + commit_at_once
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 int, $7 int, $8 nvarchar(max), $9 nvarchar(max), $10 int, $11 int, $12 int, $13 nvarchar(max), $14 nvarchar(max), $15 int, $16 int, $17 int, $18 int, $19 int, $20 varbinary(max), $21 varbinary(max)
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
DECLARE @IsOpen int = (
    SELECT COUNT(*) FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK)
    WHERE s.sweep_id = ? AND s.closed_at IS NULL AND @Answer >= 0
);
SELECT @IsOpen AS is_open;
IF @IsOpen = 0
BEGIN
    ROLLBACK TRANSACTION;
    SET XACT_ABORT OFF;
    RETURN;
END;
DECLARE @Triggers int = (
    SELECT COUNT(*)
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (name nvarchar(max) '$') t
    JOIN sys.triggers g ON g.parent_id = OBJECT_ID(t.name)
    WHERE g.is_disabled = 0
);
IF @Triggers > 0 THROW 50000, N'a table has a trigger', 1;
DECLARE @First datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), @Last datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);
INSERT INTO [nsb].[dbo].[Billing] (Id, Recoverable, Headers, Body)
SELECT NEWID(), 1, CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[Body]
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[RowVersion]
WHERE m.[Due] >= @First AND m.[Due] <= @Last
ORDER BY m.[Due]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;
DELETE TOP (?) FROM [nsb].[dbo].[Sales.Orders.Delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [Due] >= @First AND [Due] <= @Last;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;
IF EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK) WHERE a.source = ?)
    THROW 50000, N'messages have failed since they were read', 1;
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    ?, ?, 'batch', ?, ?, ?, ?,
    CONVERT(varbinary(max), ?), CONVERT(varbinary(max), ?)
);
IF @@ROWCOUNT = 0 THROW 50000, N'the journal did not take a row', 1;
COMMIT TRANSACTION;
SET XACT_ABORT OFF;

-- name: begin_at_once + fence_or_end + refuse_triggers + set_span + move_recoverable_span + remove_span + refuse_new_failures + journal_batch + refuse_dropped + commit_at_once
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 int, $7 int, $8 nvarchar(max), $9 nvarchar(max), $10 int, $11 int, $12 int, $13 nvarchar(max), $14 nvarchar(max), $15 nvarchar(max), $16 int, $17 nvarchar(max), $18 int, $19 int, $20 int, $21 int, $22 int, $23 varbinary(max), $24 varbinary(max)
SET XACT_ABORT ON;
BEGIN TRANSACTION;
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
DECLARE @IsOpen int = (
    SELECT COUNT(*) FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK)
    WHERE s.sweep_id = ? AND s.closed_at IS NULL AND @Answer >= 0
);
SELECT @IsOpen AS is_open;
IF @IsOpen = 0
BEGIN
    ROLLBACK TRANSACTION;
    SET XACT_ABORT OFF;
    RETURN;
END;
DECLARE @Triggers int = (
    SELECT COUNT(*)
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (name nvarchar(max) '$') t
    JOIN sys.triggers g ON g.parent_id = OBJECT_ID(t.name)
    WHERE g.is_disabled = 0
);
IF @Triggers > 0 THROW 50000, N'a table has a trigger', 1;
DECLARE @First datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), @Last datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);
INSERT INTO [nsb].[dbo].[Billing] (Id, Recoverable, Headers, Body)
SELECT NEWID(), 1, CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[Body]
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[RowVersion]
WHERE m.[Due] >= @First AND m.[Due] <= @Last
ORDER BY m.[Due]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;
DELETE TOP (?) FROM [nsb].[dbo].[Sales.Orders.Delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [Due] >= @First AND [Due] <= @Last;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;
DECLARE @Attempts bigint = (
    SELECT COALESCE(SUM(CONVERT(bigint, a.attempts)), 0)
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
    JOIN [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
      ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT
);
IF @Attempts <> ? THROW 50000, N'messages have failed since they were read', 1;
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    ?, ?, 'batch', ?, ?, ?, ?,
    CONVERT(varbinary(max), ?), CONVERT(varbinary(max), ?)
);
IF @@ROWCOUNT = 0 THROW 50000, N'the journal did not take a row', 1;
COMMIT TRANSACTION;
SET XACT_ABORT OFF;

-- name: bind
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_bindings] SET ledger_id = ?
WHERE source = ? AND ledger_id = '<uuid>';
INSERT INTO [nsb].[dbo].[duesweep_bindings] (source, delayed, ledger_id)
SELECT ?, ?, ?
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_bindings] b WITH (UPDLOCK, HOLDLOCK) WHERE b.source = ?);

-- name: changes_pieces
-- $1 int, $2 nvarchar(max)
SELECT MIN(m.id) AS first_id, MAX(m.id) AS last_id
FROM (
    SELECT s.id,
           (SUM(s.bytes) OVER (ORDER BY s.id ROWS UNBOUNDED PRECEDING) - s.bytes) / ? AS piece
    FROM (
        SELECT c.id,
               CONVERT(bigint, 1000 + COALESCE(DATALENGTH(c.headers_text), 0)
                   + COALESCE(DATALENGTH(c.headers), 0) + COALESCE(DATALENGTH(c.body), 0)) AS bytes
        FROM [nsb].[dbo].[duesweep_changes] c
        WHERE c.sweep_id = ?
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: claim + read_some_attempts
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 int, $9 nvarchar(max)
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
        FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
        WHERE m.[Due] = t.tick AND m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
          AND (? = N'[]' OR NOT EXISTS (
            SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
            WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
          ))
    ) l
    WHERE NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ?
          AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) p
        WHERE p.[value] = l.message_key COLLATE DATABASE_DEFAULT
      )
) d;
SELECT TOP (?) a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = ?;

-- name: clear_attempts
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
DELETE a
FROM [nsb].[dbo].[duesweep_attempts] a
JOIN STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
  ON a.message_key = k.[value] COLLATE DATABASE_DEFAULT
WHERE a.source = ?;

-- name: close_sweep
-- $1 int, $2 int, $3 nvarchar(max), $4 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_sweeps]
SET closed_at = SYSUTCDATETIME(), abandoned = ?, remaining = ?, reason = ?
WHERE sweep_id = ?;

-- name: count_arrived
-- $1 nvarchar(max), $2 int
SELECT COUNT_BIG(*) AS arrived, XACT_STATE() AS state
FROM [nsb].[dbo].[Billing] q WITH (READPAST, READCOMMITTEDLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (id uniqueidentifier '$') i ON i.id = q.Id
WHERE q.RowVersion > ?;

-- name: count_buckets
-- $1 nvarchar(max)
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
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK)
    WHERE m.[Due] >= s.first AND m.[Due] <= COALESCE(s.next, CAST('99991231 23:59:59.997' AS datetime))
      AND (s.next IS NULL OR m.[Due] < s.next)
) here
UNION ALL
SELECT NULL AS bucket, COUNT_BIG(*) AS messages FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK) WHERE m.[Due] IS NULL;

-- name: count_held_back
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
SELECT t.due, here.held_back
FROM (
    SELECT TOP (2147483647) j.due, CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due') j
) t
CROSS APPLY (
    SELECT COUNT_BIG(*) AS held_back
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK)
    WHERE m.[Due] = t.tick AND NOT (? = N'[]' OR NOT EXISTS (
      SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
      WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
    ))
) here;

-- name: count_pending
-- $1 int, $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max)
SELECT COUNT_BIG(*) AS pending
FROM (
    SELECT TOP (?) 1 AS found
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
      AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
      AND (? = N'[]' OR NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
        WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
      ))
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) eligible;

-- name: create_queue
IF OBJECT_ID(N'[nsb].[dbo].[Own]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[Own]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[Own]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[Own] (
                Id uniqueidentifier NOT NULL,
                CorrelationId varchar(255),
                ReplyToAddress varchar(255),
                Recoverable bit NOT NULL,
                Expires datetime,
                Headers nvarchar(max) NOT NULL,
                Body varbinary(max),
                RowVersion bigint IDENTITY(1,1) NOT NULL
            );
            CREATE NONCLUSTERED INDEX [Index_RowVersion] ON [nsb].[dbo].[Own] ([RowVersion] ASC);
            CREATE NONCLUSTERED INDEX [Index_Expires] ON [nsb].[dbo].[Own] ([Expires]) INCLUDE ([Id], [RowVersion])
                WHERE [Expires] IS NOT NULL;
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[Own]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[Own]_lock', @LockOwner = 'Session';
END;

-- name: create_subscriptions
IF OBJECT_ID(N'[nsb].[dbo].[SubscriptionRouting]', 'U') IS NULL
BEGIN
    DECLARE @Answer int;
    EXEC @Answer = sys.sp_getapplock @Resource = N'[nsb].[dbo].[SubscriptionRouting]_lock', @LockMode = 'Exclusive',
        @LockOwner = 'Session', @LockTimeout = 30000;
    IF @Answer < 0 THROW 50000, N'Another session has been creating this table for too long', 1;
    BEGIN TRY
        IF OBJECT_ID(N'[nsb].[dbo].[SubscriptionRouting]', 'U') IS NULL
        BEGIN
            CREATE TABLE [nsb].[dbo].[SubscriptionRouting] (
                QueueAddress nvarchar(200) NOT NULL,
                Endpoint nvarchar(200) NOT NULL,
                Topic nvarchar(200) NOT NULL,
                PRIMARY KEY CLUSTERED (Endpoint, Topic)
            );
        END
    END TRY
    BEGIN CATCH
        EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[SubscriptionRouting]_lock', @LockOwner = 'Session';
        THROW;
    END CATCH;
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[SubscriptionRouting]_lock', @LockOwner = 'Session';
END;

-- name: delete_settled or delete_changes
-- $1 nvarchar(max)
DELETE TOP (1000) FROM [nsb].[dbo].[duesweep_journal] WHERE sweep_id = ?;

-- name: delete_sweep
-- $1 nvarchar(max), $2 nvarchar(max)
DELETE FROM [nsb].[dbo].[duesweep_leases] WHERE name = ?;
DELETE FROM [nsb].[dbo].[duesweep_sweeps] WHERE sweep_id = ?;

-- name: describe_catalog
-- $1 nvarchar(max), $2 nvarchar(max)
SELECT CASE WHEN DB_ID(?) IS NULL THEN 0 ELSE 1 END AS found,
       COALESCE(HAS_DBACCESS(?), 0) AS is_open;

-- name: describe_delayed
-- $1 nvarchar(max)
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
-- $1 nvarchar(max)
SELECT c.name AS column_name, MAX(CASE WHEN i.has_filter = 1 THEN 1 ELSE 0 END) AS is_partial
FROM [nsb].sys.indexes i
JOIN [nsb].sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN [nsb].sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
WHERE i.object_id = OBJECT_ID(?) AND i.is_disabled = 0 AND ic.key_ordinal = 1 AND i.type IN (1, 2)
GROUP BY i.index_id, c.name;

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
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max)
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

-- name: describe_table + describe_rights
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 nvarchar(max), $9 nvarchar(max)
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
SELECT r.name, USER_NAME() AS grantee,
       CASE WHEN LEN(n.name) > 128 THEN 1 ELSE HAS_PERMS_BY_NAME(n.name, 'OBJECT', r.name) END AS is_granted
FROM (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) r (name)
CROSS JOIN (SELECT CASE WHEN DB_ID(?) = DB_ID() THEN ? ELSE ? END AS name) n;

-- name: doctor_clock
SELECT SYSUTCDATETIME() AS now;

-- name: doctor_references
-- $1 nvarchar(max)
SELECT f.name, OBJECT_NAME(f.parent_object_id) AS [table]
FROM sys.foreign_keys f
WHERE f.referenced_object_id = OBJECT_ID(?) AND f.delete_referential_action = 0
ORDER BY f.name;

-- name: doctor_waiting
-- $1 int
SELECT TOP (CONVERT(int, ?)) m.Headers AS headers, CONVERT(nvarchar(200), NULL) AS destination
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Due] IS NOT NULL
ORDER BY m.[Due];

-- name: drop_old_pauses
-- $1 nvarchar(max)
DELETE p FROM [nsb].[dbo].[duesweep_pauses] p WITH (READPAST, READCOMMITTEDLOCK) WHERE p.source = ? AND p.until_at <= SYSUTCDATETIME();

-- name: dropped_sources
SELECT b.source, b.delayed, (SELECT COUNT(*) FROM [nsb].[dbo].[duesweep_sweeps] s WHERE s.source = b.source) AS unsettled
FROM [nsb].[dbo].[duesweep_bindings] b
WHERE OBJECT_ID(b.delayed, 'U') IS NULL
ORDER BY b.source;

-- name: estimate_rows
-- $1 nvarchar(max)
SELECT COALESCE(SUM(p.rows), 0) AS rows
FROM sys.partitions p
WHERE p.object_id = OBJECT_ID(?) AND p.index_id IN (0, 1);

-- name: exhausted_pieces
-- $1 int, $2 nvarchar(max)
SELECT MIN(m.id) AS first_id, MAX(m.id) AS last_id
FROM (
    SELECT s.id,
           (SUM(s.bytes) OVER (ORDER BY s.id ROWS UNBOUNDED PRECEDING) - s.bytes) / ? AS piece
    FROM (
        SELECT j.id,
               CONVERT(bigint, 1000 + COALESCE(DATALENGTH(j.headers_text), 0)
                   + COALESCE(DATALENGTH(j.headers), 0) + COALESCE(DATALENGTH(j.body), 0)
                   + COALESCE(DATALENGTH(j.error_text), 0) + COALESCE(DATALENGTH(j.stack), 0)) AS bytes
        FROM [nsb].[dbo].[duesweep_journal] j
        WHERE j.sweep_id = ? AND j.kind = 'exhausted'
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: explain_unclaimed
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max)
SELECT t.due, here.present, failures.waiting, failures.failed_since
FROM (
    SELECT TOP (2147483647) j.due, CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (due varchar(27) '$.due') j
) t
CROSS JOIN (SELECT started_at FROM [nsb].[dbo].[duesweep_sweeps] WHERE sweep_id = ?) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS present
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK)
    WHERE m.[Due] = t.tick
) here
CROSS APPLY (
    SELECT COUNT_BIG(*) AS waiting,
           COUNT_BIG(k.is_new) AS failed_since
    FROM [nsb].[dbo].[duesweep_attempts] a WITH (NOLOCK)
    CROSS APPLY (SELECT CASE WHEN a.last_failed_at >= s.started_at THEN 1 END AS is_new) k
    WHERE a.source = ? AND a.due_at = CONVERT(datetime2(7), t.due, 121)
      AND a.next_attempt_at > SYSUTCDATETIME()
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) p
        WHERE p.[value] = a.message_key COLLATE DATABASE_DEFAULT
      )
) failures;

-- name: failure_reasons
-- $1 int, $2 nvarchar(max), $3 nvarchar(max)
SELECT TOP (CONVERT(int, ?)) f.reason, COUNT(*) AS messages, MIN(f.destination) AS destination
FROM (
    SELECT LEFT(j.error_text, 500) AS reason, LEFT(j.destination, 400) AS destination
    FROM [nsb].[dbo].[duesweep_journal] j
    WHERE j.sweep_id = ? AND j.kind = 'exhausted'
    UNION ALL
    SELECT LEFT(a.error_text, 500), LEFT(a.destination, 400)
    FROM [nsb].[dbo].[duesweep_sweeps] s
    JOIN [nsb].[dbo].[duesweep_attempts] a ON a.source = s.source
        AND a.last_failed_at BETWEEN DATEADD(millisecond, -1, s.started_at) AND DATEADD(millisecond, 1, s.closed_at)
    WHERE s.sweep_id = ?
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason;

-- name: fence + count_some_waiting
-- $1 nvarchar(max), $2 nvarchar(max), $3 int, $4 nvarchar(max)
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Shared', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       CASE WHEN s.stop_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_stopping,
       CASE WHEN EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_pauses] p WITH (NOLOCK) WHERE p.source = s.source)
            THEN 1 ELSE 0 END AS has_pauses,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK)
WHERE s.sweep_id = ?;
SELECT COUNT_BIG(*) AS waiting
FROM (
    SELECT TOP (?) a.message_key
    FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME()
) w;

-- name: fetch_next_due
-- $1 nvarchar(max)
SELECT TOP (1) l.message_key, CAST(CONVERT(datetime2(7), l.due) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS instant_us,
       l.headers, l.body, l.destination, l.attempts
FROM (
    SELECT TOP (1600) CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, m.[Due] AS due, m.Headers AS headers,
           m.[Body] AS body, CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.[Due] < GETUTCDATE()
    ORDER BY m.[Due]
) l
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ?
      AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY l.due;

-- name: find
-- $1 int, $2 nvarchar(max), $3 nvarchar(max)
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us,
       m.Headers AS headers, CASE WHEN ? = 1 THEN m.[Body] END AS body,
       CONVERT(nvarchar(200), NULL) AS destination, 0 AS attempts,
       COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK)
WHERE m.[RowVersion] IN (
    SELECT CONVERT(bigint, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: find_gone_attempts
-- $1 nvarchar(max)
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM [nsb].[dbo].[duesweep_attempts] a WITH (NOLOCK)
    WHERE a.source = ? AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[Sales.Orders.Delayed] d WITH (NOLOCK)
        WHERE d.[Due] = CAST(a.due_at AS datetime) AND d.[RowVersion] = CONVERT(bigint, a.message_key)
      )
) THEN 1 ELSE 0 END AS found;

-- name: find_pending
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max)
SELECT TOP (1) CONVERT(datetime2(7), m.[Due]) AS due
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime) AND m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND (? = N'[]' OR NOT EXISTS (
    SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
    WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
  ))
  AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ? AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY m.[Due];

-- name: forget_attempts
-- $1 nvarchar(max)
DELETE TOP (1000) FROM [nsb].[dbo].[duesweep_attempts] WHERE source = ?;

-- name: forget_pauses or forget_limits or unbind
-- $1 nvarchar(max)
DELETE FROM [nsb].[dbo].[duesweep_pauses] WHERE source = ?;

-- name: free
-- $1 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_bindings]
SET ledger_id = '<uuid>', settled_sweep = NULL, settled_at = NULL
WHERE source = ?;

-- name: give_lease_back
-- $1 nvarchar(max), $2 nvarchar(max)
DELETE FROM [nsb].[dbo].[duesweep_leases]
WHERE name = ? AND holder = ? OR until_at < DATEADD(day, -1, SYSUTCDATETIME());

-- name: gone_counters
-- $1 int, $2 nvarchar(max)
SELECT TOP (?) a.message_key
FROM [nsb].[dbo].[duesweep_attempts] a WITH (NOLOCK)
WHERE a.source = ? AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[Sales.Orders.Delayed] d WITH (NOLOCK)
    WHERE d.[RowVersion] = CONVERT(bigint, a.message_key)
)
ORDER BY a.message_key;

-- name: hold
-- $1 nvarchar(max)
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
JOIN [nsb].[dbo].[Sales.Orders.Delayed] m WITH (UPDLOCK, READPAST, ROWLOCK) ON m.[Due] = t.tick AND m.[RowVersion] = t.message_key;

-- name: horizon
SELECT CONVERT(datetime2(7), GETUTCDATE()) AS horizon;

-- name: insert_recoverable_message
-- $1 nvarchar(max), $2 nvarchar(max), $3 varbinary(max)
INSERT INTO [nsb].[dbo].[Billing] (Id, Recoverable, Headers, Body) VALUES (?, 1, ?, ?);

-- name: journal_batch
-- $1 nvarchar(max), $2 int, $3 int, $4 int, $5 int, $6 int, $7 varbinary(max), $8 nvarchar(max) or varbinary(max)
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    ?, ?, 'batch', ?, ?, ?, ?,
    CONVERT(varbinary(max), ?), CONVERT(varbinary(max), ?)
);

-- name: journal_cancelled
-- $1 nvarchar(max), $2 int, $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 int, $8 int, $9 int, $10 nvarchar(max), $11 nvarchar(max), $12 varbinary(max)
INSERT INTO [nsb].[dbo].[duesweep_changes] (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, headers_text, body
) VALUES (
    ?, 'cancelled', ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, CONVERT(varbinary(max), ?)
);

-- name: journal_changes
-- $1 nvarchar(max), $2 nvarchar(max), $3 int, $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 int or nvarchar(max), $9 int, $10 nvarchar(max), $11 nvarchar(max), $12 int, $13 int
INSERT INTO [nsb].[dbo].[duesweep_changes] (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, [of], new_key, attempts, body_bytes
) VALUES (
    ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?
);

-- name: journal_exhausted
-- $1 nvarchar(max), $2 int, $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 int, $9 int, $10 int, $11 nvarchar(max), $12 nvarchar(max), $13 int, $14 nvarchar(max), $15 nvarchar(max), $16 nvarchar(max), $17 nvarchar(max), $18 nvarchar(max), $19 varbinary(max)
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due_us,
    dispatched_us, attempts, first_failed_us, error_class, error_text, stack, headers, headers_text,
    body
)
SELECT ?, ?, 'exhausted', ?, ?, ?, ?, ?,
       ?, ?, ?,
       COALESCE((
           SELECT DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at)
           FROM [nsb].[dbo].[duesweep_attempts] a
           WHERE a.source = ? AND a.message_key = ?
       ), ?),
       ?, ?, ?, ?, ?, CONVERT(varbinary(max), ?);

-- name: journal_slice
-- $1 nvarchar(max), $2 int, $3 int, $4 int, $5 int, $6 int, $7 int, $8 int, $9 int, $10 nvarchar(max), $11 nvarchar(max), $12 nvarchar(max)
INSERT INTO [nsb].[dbo].[duesweep_journal] (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, [left], reason, breakers, error_text
) VALUES (
    ?, ?, 'slice', ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?
);

-- name: keep_place
-- $1 nvarchar(max), $2 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_bindings]
SET place = ?,
    settled_sweep = CASE WHEN place IS NOT NULL THEN settled_sweep END,
    settled_at = CASE WHEN place IS NOT NULL THEN settled_at END
WHERE source = ?;

-- name: last_message
SELECT COALESCE(MAX(q.RowVersion), 0) AS number FROM [nsb].[dbo].[Billing] q WITH (READPAST, READCOMMITTEDLOCK);

-- name: lateness
-- $1 nvarchar(max)
SELECT j.lateness_ms
FROM [nsb].[dbo].[duesweep_journal] j
WHERE j.sweep_id = ? AND j.kind = 'batch' AND j.outcomes IS NOT NULL
ORDER BY j.id;

-- name: list_subscribers
-- $1 nvarchar(max)
SELECT DISTINCT QueueAddress AS queue_address FROM [nsb].[dbo].[SubscriptionRouting] WHERE Topic = ?;

-- name: lock_sweep_counters
-- $1 nvarchar(max), $2 nvarchar(max)
DECLARE @Answer int;
EXEC @Answer = sys.sp_getapplock @Resource = ?, @LockMode = 'Exclusive', @LockOwner = 'Transaction',
    @LockTimeout = 10000;
SELECT @Answer AS answer, s.exhausted FROM [nsb].[dbo].[duesweep_sweeps] s WHERE s.sweep_id = ?;

-- name: locked_rows
-- $1 nvarchar(max), $2 nvarchar(max)
SELECT everything.messages - visible.messages AS messages, CONVERT(datetime2(7), everything.due) AS due,
       NULL AS holder, NULL AS since
FROM (
    SELECT COUNT_BIG(*) AS messages, MIN(m.due) AS due
    FROM (
        SELECT TOP (10000) m.[Due] AS due FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK) WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Due]
    ) m
) everything
CROSS JOIN (
    SELECT COUNT_BIG(*) AS messages
    FROM (
        SELECT TOP (10000) m.[Due] AS due FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
        WHERE m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Due]
    ) m
) visible;

-- name: look
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max)
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Due])) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, CONVERT(nvarchar(200), NULL) AS destination,
       0 AS attempts, COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK)
WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND m.[Due] <= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('99991231 23:59:59.997' AS datetime))
  AND (CAST(CONVERT(datetime2(7), ?, 121) AS datetime) IS NULL OR m.[Due] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime))
ORDER BY m.[Due]
OPTION (FAST 1000);

-- name: look_at_sweep + read_some_attempts + set_span + read_span
-- $1 nvarchar(max), $2 int, $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 int
DECLARE @Answer int = 0;
SELECT CASE WHEN s.closed_at IS NULL AND @Answer >= 0 THEN 1 ELSE 0 END AS is_open,
       CASE WHEN s.stop_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_stopping,
       CASE WHEN EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_pauses] p WITH (NOLOCK) WHERE p.source = s.source)
            THEN 1 ELSE 0 END AS has_pauses,
       DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME()) AS server_us
FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK)
WHERE s.sweep_id = ?;
SELECT TOP (?) a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = ?;
DECLARE @First datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), @Last datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);
SELECT TOP (?) CAST(m.[RowVersion] AS nvarchar(250)) AS message_key, CAST(CONVERT(datetime2(7), m.[Due]) AS varchar(27)) AS due, m.Headers AS headers,
       CONVERT(nvarchar(200), NULL) AS destination, COALESCE(DATALENGTH(m.[Body]), 0) AS body_bytes
FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE m.[Due] >= @First AND m.[Due] <= @Last;

-- name: name_journal
-- $1 nvarchar(max), $2 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_bindings] SET journal_id = ? WHERE source = ? AND journal_id IS NULL;

-- name: note_settled
-- $1 nvarchar(max)
UPDATE b
SET settled_sweep = s.sweep_id, settled_at = s.closed_at
FROM [nsb].[dbo].[duesweep_bindings] b
JOIN [nsb].[dbo].[duesweep_sweeps] s ON s.source = b.source
WHERE s.sweep_id = ?
  AND (b.settled_at IS NULL OR b.settled_at <= s.closed_at)
  AND (s.command IS NULL OR EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_changes] c WHERE c.sweep_id = s.sweep_id));

-- name: open_command
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max)
INSERT INTO [nsb].[dbo].[duesweep_sweeps] (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (?, ?, CONVERT(datetime2(7), ?, 121), ?, ?, ?);

-- name: open_sweep
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 int
INSERT INTO [nsb].[dbo].[duesweep_sweeps] (sweep_id, source, horizon, engine, attempts_changed)
VALUES (?, ?, CONVERT(datetime2(7), ?, 121), ?, ?);

-- name: orphaned_journal
SELECT LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id
FROM (
    SELECT sweep_id FROM [nsb].[dbo].[duesweep_journal] WITH (NOLOCK)
    UNION
    SELECT sweep_id FROM [nsb].[dbo].[duesweep_changes] WITH (NOLOCK)
) j
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_sweeps] s WITH (NOLOCK) WHERE s.sweep_id = j.sweep_id);

-- name: pause
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 nvarchar(max), $9 nvarchar(max), $10 nvarchar(max), $11 nvarchar(max), $12 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_pauses] WITH (UPDLOCK, HOLDLOCK)
SET paused_at = SYSUTCDATETIME(), until_at = CONVERT(datetime2(3), ?, 121), given_by = ?,
    reason = ?
WHERE source = ? AND pattern = ?;
INSERT INTO [nsb].[dbo].[duesweep_pauses] (source, pattern, until_at, given_by, reason)
SELECT ?, ?, CONVERT(datetime2(3), ?, 121), ?, ?
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[duesweep_pauses] p WITH (UPDLOCK, HOLDLOCK) WHERE p.source = ? AND p.pattern = ?
);

-- name: peek
-- $1 int
SELECT COUNT(*) AS messages
FROM (
    SELECT TOP (?) RowVersion FROM [nsb].[dbo].[Own] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
) AS Waiting;

-- name: postpone_attempts
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_attempts]
SET next_attempt_at = CAST(CONVERT(datetime2(7), ?, 121) AS datetime), due_at = CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
WHERE source = ? AND message_key = ?;

-- name: progress
-- $1 nvarchar(max)
SELECT COUNT_BIG(CASE WHEN j.kind = 'batch' THEN 1 END) AS batches,
       COALESCE(SUM(CONVERT(bigint, j.dispatched)), 0) AS dispatched,
       COALESCE(SUM(CONVERT(bigint, j.failed)), 0)
           + COUNT_BIG(CASE WHEN j.kind = 'exhausted' THEN 1 END) AS failed
FROM [nsb].[dbo].[duesweep_journal] j WITH (READPAST, READCOMMITTEDLOCK)
WHERE j.sweep_id = ?;

-- name: purge
-- $1 int
DELETE TOP (?) FROM [nsb].[dbo].[Own] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK);

-- name: purge_expired
-- $1 int
DELETE TOP (?) FROM [nsb].[dbo].[Own] WITH (ROWLOCK, READPAST, READCOMMITTEDLOCK) WHERE Expires < GETUTCDATE();

-- name: queue_indexes + queue_tables
SELECT s.name AS [schema], t.name AS [table], LOWER(c.name) AS column_name
FROM sys.indexes i
JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
JOIN sys.tables t ON t.object_id = i.object_id
JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE i.is_disabled = 0 AND i.type IN (1, 2) AND ic.key_ordinal = 1
  AND (LOWER(c.name) = 'expires' OR (LOWER(c.name) = 'rowversion' AND i.has_filter = 0));
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
-- $1 int, $2 nvarchar(max), $3 nvarchar(max), $4 int, $5 int, $6 nvarchar(max), $7 nvarchar(max), $8 nvarchar(max), $9 nvarchar(max), $10 nvarchar(max), $11 nvarchar(max), $12 nvarchar(max), $13 nvarchar(max), $14 nvarchar(max), $15 int, $16 int, $17 int, $18 nvarchar(max), $19 nvarchar(max)
SET NOCOUNT ON;
UPDATE [nsb].[dbo].[duesweep_attempts]
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
INSERT INTO [nsb].[dbo].[duesweep_attempts] (
    source, message_key, message_id, destination, due_at, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
) VALUES (
    ?, ?, ?, ?, CONVERT(datetime2(7), ?, 121), ?,
    SYSUTCDATETIME(), SYSUTCDATETIME(),
    DATEADD(millisecond, ?, DATEADD(second, ?, SYSUTCDATETIME())),
    ?, ?
);
SET NOCOUNT OFF;

-- name: read_attempts
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
SELECT a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
JOIN [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
  ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: read_batches
-- $1 nvarchar(max), $2 int, $3 nvarchar(max), $4 int, $5 int
SELECT j.id, j.outcomes
FROM (
    SELECT b.id, b.outcomes, ROW_NUMBER() OVER (ORDER BY b.id) AS position
    FROM [nsb].[dbo].[duesweep_journal] b
    WHERE b.sweep_id = ? AND b.kind = 'batch' AND b.outcomes IS NOT NULL AND b.id > ?
) j
CROSS JOIN (
    SELECT MAX(m.dispatched) AS longest
    FROM [nsb].[dbo].[duesweep_journal] m
    WHERE m.sweep_id = ? AND m.kind = 'batch'
) l
WHERE j.position <= CASE WHEN l.longest > 0 AND ? / l.longest > 1 THEN ? / l.longest ELSE 1 END
ORDER BY j.id;

-- name: read_binding
-- $1 nvarchar(max)
SELECT found.delayed, LOWER(CONVERT(varchar(36), found.ledger_id)) AS ledger_id, found.bound_at,
       LOWER(CONVERT(varchar(36), found.journal_id)) AS journal_id,
       LOWER(CONVERT(varchar(36), found.settled_sweep)) AS settled_sweep, found.settled_at, found.place
FROM (
    SELECT CONVERT(uniqueidentifier, NULL) AS journal_id, CONVERT(uniqueidentifier, NULL) AS settled_sweep,
           CONVERT(datetime2(3), NULL) AS settled_at, CONVERT(nvarchar(max), NULL) AS place
) lacking
CROSS APPLY (
    SELECT delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place
    FROM [nsb].[dbo].[duesweep_bindings]
    WHERE source = ?
) found;

-- name: read_changes
-- $1 nvarchar(max), $2 int, $3 int
SELECT c.id, LOWER(CONVERT(varchar(36), c.sweep_id)) AS sweep_id, s.command, c.change,
       c.changed_us AS changed_at, s.given_by, s.given_reason AS reason, c.message_key, c.message_id,
       c.message_type, c.destination, c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue,
       c.[of], c.new_key, c.attempts, c.headers, c.headers_text, c.body, c.body_bytes
FROM [nsb].[dbo].[duesweep_changes] c
JOIN [nsb].[dbo].[duesweep_sweeps] s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = ? AND c.id BETWEEN ? AND ?
ORDER BY c.id;

-- name: read_command
-- $1 nvarchar(max)
SELECT s.command, s.given_by, s.given_reason, CASE WHEN EXISTS (
    SELECT 1 FROM [nsb].[dbo].[duesweep_changes] c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) THEN 1 ELSE 0 END AS attempts_changed
FROM [nsb].[dbo].[duesweep_sweeps] s
WHERE s.sweep_id = ? AND s.command IS NOT NULL;

-- name: read_exhausted
-- $1 nvarchar(max), $2 int, $3 int
SELECT j.id, LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id, j.message_key, j.message_id,
       j.message_type, j.destination, j.queue, j.due_us AS due, j.dispatched_us AS dispatched_at,
       (j.dispatched_us - j.due_us) / 1000 AS lateness_ms, j.attempts,
       CONVERT(bigint, COALESCE(DATALENGTH(j.body), 0)) AS body_bytes,
       j.first_failed_us AS first_failed_at, j.dispatched_us AS last_failed_at, j.error_class, j.error_text, j.stack,
       j.headers, j.headers_text, j.body
FROM [nsb].[dbo].[duesweep_journal] j
WHERE j.sweep_id = ? AND j.kind = 'exhausted' AND j.id BETWEEN ? AND ?
ORDER BY j.id;

-- name: read_failures
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
SELECT a.message_key, a.attempts,
       a.next_attempt_at, a.error_text
FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
JOIN [nsb].[dbo].[duesweep_attempts] a WITH (NOLOCK)
  ON a.source = ? AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: read_lists
-- $1 nvarchar(max), $2 nvarchar(max)
SELECT STRING_AGG(j.[value], N',') AS joined, (SELECT COUNT(*) FROM STRING_SPLIT(?, ',')) AS words
FROM OPENJSON(?) j;

-- name: read_pauses
-- $1 nvarchar(max)
SELECT p.pattern, p.paused_at, p.until_at, p.given_by, p.reason
FROM [nsb].[dbo].[duesweep_pauses] p WITH (NOLOCK)
WHERE p.source = ? AND (p.until_at IS NULL OR p.until_at > SYSUTCDATETIME())
ORDER BY p.pattern;

-- name: read_retries
-- $1 int, $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max)
SELECT TOP (?) a.message_key, a.message_id, a.destination, a.attempts,
       DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at) AS first_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.last_failed_at) AS last_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.next_attempt_at) AS next_attempt_at,
       a.error_class, a.error_text
FROM [nsb].[dbo].[duesweep_attempts] a
WHERE a.source = ? AND (? IS NULL OR a.message_key > ?)
ORDER BY a.message_key;

-- name: read_slice
SELECT claim_keys, sizes, total FROM (
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.chunk
FROM (VALUES (0, CAST(CONVERT(datetime2(7), N'<time>', 121) AS datetime), CONVERT(bigint, N'-9223372036854775808'), CAST(CONVERT(datetime2(7), N'9999-12-31 23:59:59.997', 121) AS datetime), CONVERT(bigint, N'-9223372036854775808'))) AS s (slice, first_due, first_key, end_due, end_key)
OUTER APPLY (
    SELECT STRING_AGG(CONVERT(varchar(max), CAST(CONVERT(datetime2(7), k.due) AS varchar(27))), ',')
               WITHIN GROUP (ORDER BY k.position) AS claim_keys,
           STRING_AGG(CONVERT(varchar(max), k.bytes), ',')
               WITHIN GROUP (ORDER BY k.position) AS sizes,
           SUM(COUNT_BIG(*)) OVER () AS total,
           k.position / CONVERT(bigint, N'1000') AS chunk
    FROM (
        SELECT pending.due, pending.bytes,
               ROW_NUMBER() OVER (ORDER BY pending.due, pending.message_key) - 1 AS position
        FROM (
            SELECT TOP (CONVERT(bigint, N'50000')) m.[Due] AS due, m.[RowVersion] AS message_key,
                   COALESCE(DATALENGTH(m.Headers), 0) + COALESCE(DATALENGTH(m.[Body]), 0) AS bytes
            FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.[Due] < CAST(CONVERT(datetime2(7), N'<time>', 121) AS datetime)
              AND m.[Due] >= s.first_due AND m.[Due] <= s.end_due
              AND (m.[Due] > s.first_due OR m.[RowVersion] >= s.first_key)
              AND (m.[Due] < s.end_due OR m.[RowVersion] < s.end_key)
              AND (N'["%\"NServiceBus.SqlServer.ForwardDestination\":\"Shipping\"%", "%\"NServiceBus.SqlServer.ForwardDestination\":\"Shipping@%"]' = N'[]' OR NOT EXISTS (
                SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), N'["%\"NServiceBus.SqlServer.ForwardDestination\":\"Shipping\"%", "%\"NServiceBus.SqlServer.ForwardDestination\":\"Shipping@%"]')) WITH (fits nvarchar(max) '$') p
                WHERE COALESCE(m.[Headers], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
              ))
              AND NOT EXISTS (
                SELECT 1 FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
                WHERE a.source = N'nsb/Sales.Orders.Delayed' AND a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
                  AND a.next_attempt_at > SYSUTCDATETIME()
              )
        ) pending
    ) k
    GROUP BY k.position / CONVERT(bigint, N'1000')
) chunk
) AS due_messages WHERE slice = 0 ORDER BY chunk;

-- name: read_slice_ends + read_sweep
-- $1 nvarchar(max), $2 nvarchar(max)
SELECT slice, given, claimed, skipped, gone, later, held, [left], reason, breakers,
       error_text AS careful_batches
FROM [nsb].[dbo].[duesweep_journal]
WHERE sweep_id = ? AND kind = 'slice'
ORDER BY id;
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM [nsb].[dbo].[duesweep_sweeps]
WHERE sweep_id = ?;

-- name: read_some_attempts
-- $1 int, $2 nvarchar(max)
SELECT TOP (?) a.message_key, a.attempts,
       CASE WHEN a.next_attempt_at <= SYSUTCDATETIME() THEN 1 ELSE 0 END AS is_eligible
FROM [nsb].[dbo].[duesweep_attempts] a WITH (READPAST, READCOMMITTEDLOCK)
WHERE a.source = ?;

-- name: read_sweep + total_batches + read_slice_ends
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
SELECT LOWER(CONVERT(varchar(36), sweep_id)) AS sweep_id, source, started_at, closed_at,
       CONVERT(datetime2(3), horizon) AS horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM [nsb].[dbo].[duesweep_sweeps]
WHERE sweep_id = ?;
SELECT slice,
       SUM(CONVERT(bigint, COALESCE(dispatched, 0))) AS dispatched,
       SUM(CONVERT(bigint, COALESCE(failed, 0))) AS failed,
       SUM(CONVERT(bigint, CASE WHEN kind = 'exhausted' THEN 1 ELSE 0 END)) AS exhausted,
       SUM(COALESCE(body_bytes, 0)) AS bytes,
       MAX(CASE WHEN attempts_changed = 1 OR kind = 'exhausted' THEN 1 ELSE 0 END) AS attempts_changed
FROM [nsb].[dbo].[duesweep_journal]
WHERE sweep_id = ? AND kind <> 'slice'
GROUP BY slice;
SELECT slice, given, claimed, skipped, gone, later, held, [left], reason, breakers,
       error_text AS careful_batches
FROM [nsb].[dbo].[duesweep_journal]
WHERE sweep_id = ? AND kind = 'slice'
ORDER BY id;

-- name: receive_with_columns
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Now datetime = GETUTCDATE();
DELETE q
OUTPUT deleted.Id AS id, deleted.Headers AS headers, deleted.Body AS body,
    deleted.Expires AS expires, @Now AS utc_now,
    deleted.CorrelationId AS correlation_id, deleted.ReplyToAddress AS reply_to_address
FROM [nsb].[dbo].[Own] AS q WITH (ROWLOCK)
WHERE q.RowVersion = (
    SELECT TOP (1) RowVersion FROM [nsb].[dbo].[Own] WITH (UPDLOCK, READPAST, ROWLOCK) ORDER BY RowVersion
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: remove
-- $1 nvarchar(max)
DELETE d
FROM [nsb].[dbo].[Sales.Orders.Delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key bigint '$.key'
) k
  ON d.[Due] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[RowVersion] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: remove_any
DELETE TOP (1) FROM [nsb].[dbo].[Sales.Orders.Delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK);

-- name: reschedule
-- $1 nvarchar(max)
UPDATE d
SET [Due] = CAST(CONVERT(datetime2(7), k.new_due, 121) AS datetime)
FROM [nsb].[dbo].[Sales.Orders.Delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key bigint '$.key', new_due varchar(27) '$.new_due'
) k
  ON d.[Due] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[RowVersion] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: reserve
-- $1 float, $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 nvarchar(max), $9 nvarchar(max)
DECLARE @Now bigint = DATEDIFF_BIG(microsecond, '19700101', SYSUTCDATETIME());
DECLARE @Length bigint = CONVERT(bigint, CONVERT(float, ?) * 1000000);
DECLARE @Latest bigint = @Now + CASE WHEN @Length > 100000 THEN 100 * @Length ELSE 10000000 END;
INSERT INTO [nsb].[dbo].[duesweep_limits] (source, pattern, free_us)
SELECT ?, ?, @Now
WHERE NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[duesweep_limits] l WITH (UPDLOCK, HOLDLOCK) WHERE l.source = ? AND l.pattern = ?
);
UPDATE [nsb].[dbo].[duesweep_limits] WITH (UPDLOCK)
SET free_us = CASE WHEN free_us > @Latest THEN @Latest WHEN free_us > @Now THEN free_us ELSE @Now END + @Length
WHERE source = ? AND pattern = ?;
SELECT CASE WHEN l.free_us - @Length > @Now THEN (l.free_us - @Length - @Now) / 1000000.0 ELSE 0.0 END
           AS wait_seconds
FROM [nsb].[dbo].[duesweep_limits] l
WHERE l.source = ? AND l.pattern = ?;

-- name: resume
-- $1 nvarchar(max), $2 nvarchar(max)
DELETE FROM [nsb].[dbo].[duesweep_pauses] WHERE source = ? AND pattern = ?;

-- name: seal
-- $1 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_sweeps]
SET sealed_at = SYSUTCDATETIME()
WHERE sweep_id = ? AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: send_later
-- $1 int, $2 int, $3 int, $4 int, $5 int, $6 nvarchar(max), $7 varbinary(max)
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Due datetime = GETUTCDATE();
SET @Due = DATEADD(ms, ?, @Due);
SET @Due = DATEADD(s, ?, @Due);
SET @Due = DATEADD(n, ?, @Due);
SET @Due = DATEADD(hh, ?, @Due);
SET @Due = DATEADD(d, ?, @Due);
INSERT INTO [nsb].[dbo].[Sales.Orders.Delayed] (Headers, Body, Due)
VALUES (?, CAST(? AS varbinary(max)), @Due);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: send_recoverable
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 varbinary(max)
DECLARE @Nocount varchar(3) = 'OFF';
IF ((512 & @@OPTIONS) = 512) SET @Nocount = 'ON';
SET NOCOUNT ON;
DECLARE @Seconds int = ?, @Milliseconds int = ?;
INSERT INTO [nsb].[dbo].[Own] (Id, Recoverable, Expires, Headers, Body)
VALUES (
    ?, 1, DATEADD(ms, @Milliseconds, DATEADD(s, @Seconds, GETUTCDATE())), ?,
    CAST(? AS varbinary(max))
);
IF @Nocount = 'OFF' SET NOCOUNT OFF;

-- name: server_identity
SELECT CONCAT(CONVERT(nvarchar(128), SERVERPROPERTY('ServerName')), N'/', DB_NAME()) AS [identity];

-- name: set_planned
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
UPDATE [nsb].[dbo].[duesweep_sweeps] SET planned = ?, horizon = CONVERT(datetime2(7), ?, 121)
WHERE sweep_id = ? AND closed_at IS NULL;

-- name: similar_tables
-- $1 nvarchar(max), $2 nvarchar(max)
SELECT TOP (1000) t.TABLE_SCHEMA AS [schema], t.TABLE_NAME AS name
FROM [nsb].INFORMATION_SCHEMA.TABLES t
WHERE t.TABLE_TYPE = 'BASE TABLE' AND RIGHT(t.TABLE_NAME, LEN(?)) = ?
ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME;

-- name: stop_sweep
-- $1 int, $2 nvarchar(max), $3 int
UPDATE [nsb].[dbo].[duesweep_sweeps]
SET stop_at = DATEADD(millisecond, CONVERT(int, ?), SYSUTCDATETIME())
WHERE sweep_id = ? AND closed_at IS NULL
  AND (stop_at IS NULL OR stop_at > DATEADD(millisecond, CONVERT(int, ?), SYSUTCDATETIME()));

-- name: store_message
-- $1 nvarchar(max), $2 varbinary(max), $3 nvarchar(max)
INSERT INTO [nsb].[dbo].[Sales.Orders.Delayed] (Headers, Body, Due)
VALUES (?, CONVERT(varbinary(max), ?), CONVERT(datetime, ?, 121));
SELECT CONVERT(bigint, SCOPE_IDENTITY()) AS message_key;

-- name: stored_keys
SELECT CAST(m.[RowVersion] AS nvarchar(250)) AS message_key FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK);

-- name: subscribe
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
DECLARE @Address nvarchar(200) = ?, @Endpoint nvarchar(200) = ?,
    @Topic nvarchar(200) = ?;
UPDATE [nsb].[dbo].[SubscriptionRouting] WITH (UPDLOCK, SERIALIZABLE, ROWLOCK) SET QueueAddress = @Address
WHERE Endpoint = @Endpoint AND Topic = @Topic;
IF @@ROWCOUNT = 0
    INSERT INTO [nsb].[dbo].[SubscriptionRouting] (QueueAddress, Endpoint, Topic)
    VALUES (@Address, @Endpoint, @Topic);

-- name: take_lease
-- $1 int, $2 nvarchar(max), $3 nvarchar(max), $4 nvarchar(max), $5 nvarchar(max), $6 nvarchar(max), $7 nvarchar(max), $8 nvarchar(max), $9 nvarchar(max), $10 nvarchar(max), $11 nvarchar(max), $12 nvarchar(max), $13 nvarchar(max), $14 nvarchar(max)
DECLARE @Now datetime2(7) = SYSUTCDATETIME();
DECLARE @Until datetime2(7) = DATEADD(millisecond, CONVERT(int, ?), @Now);
UPDATE [nsb].[dbo].[duesweep_leases] WITH (UPDLOCK, HOLDLOCK)
SET holder = ?, process = ?, mark = ?, taken_at = @Now, until_at = @Until
WHERE name = ? AND (until_at <= @Now OR holder IN (?, ?));
INSERT INTO [nsb].[dbo].[duesweep_leases] (name, holder, process, mark, taken_at, until_at)
SELECT ?, ?, ?, ?, @Now, @Until
WHERE NOT EXISTS (SELECT 1 FROM [nsb].[dbo].[duesweep_leases] l WITH (UPDLOCK, HOLDLOCK) WHERE l.name = ?);
SELECT 1 AS taken FROM [nsb].[dbo].[duesweep_leases] l WHERE l.name = ? AND l.holder = ?;

-- name: unsettled_sweeps
-- $1 nvarchar(max)
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.started_at,
       CASE WHEN s.closed_at IS NULL THEN 0 ELSE 1 END AS is_closed, s.sealed_at, s.command,
       LOWER(CONVERT(varchar(36), l.holder)) AS holder, l.mark
FROM [nsb].[dbo].[duesweep_sweeps] s
LEFT JOIN [nsb].[dbo].[duesweep_leases] l WITH (NOLOCK)
    ON l.name = CONCAT(N'sweep ', LOWER(CONVERT(varchar(36), s.sweep_id))) COLLATE DATABASE_DEFAULT
    AND l.until_at > SYSUTCDATETIME()
WHERE s.source = ?
ORDER BY s.started_at;

-- name: unsubscribe
-- $1 nvarchar(max), $2 nvarchar(max)
DELETE FROM [nsb].[dbo].[SubscriptionRouting] WITH (ROWLOCK) WHERE Endpoint = ? AND Topic = ?;

-- name: upcoming
-- $1 nvarchar(max), $2 nvarchar(max), $3 nvarchar(max)
SELECT (
    SELECT CONVERT(datetime2(7), MIN(m.[Due]))
    FROM [nsb].[dbo].[Sales.Orders.Delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Due] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
) AS due, COUNT_BIG(*) AS messages, MIN(a.next_attempt_at) AS next_attempt
FROM [nsb].[dbo].[duesweep_attempts] a WITH (NOLOCK)
JOIN [nsb].[dbo].[Sales.Orders.Delayed] m WITH (NOLOCK) ON a.message_key = CAST(m.[RowVersion] AS nvarchar(250)) COLLATE DATABASE_DEFAULT
WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME() AND m.[Due] < COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime));
