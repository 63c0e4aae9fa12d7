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
        SELECT TOP (1600) LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, m.[Time] AS due, m.Headers AS headers,
               m.[State] AS body, m.[Destination] AS destination, 0 AS attempts
        FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
        WHERE m.[Time] = t.tick AND m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
          AND (? = N'[]' OR NOT EXISTS (
            SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
            WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
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
    WHERE m.[Time] >= s.first AND m.[Time] <= COALESCE(s.next, CAST('99991231 23:59:59.997' AS datetime))
      AND (s.next IS NULL OR m.[Time] < s.next)
) here
UNION ALL
SELECT NULL AS bucket, COUNT_BIG(*) AS messages FROM [nsb].[dbo].[delayed] m WITH (NOLOCK) WHERE m.[Time] IS NULL;

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
    WHERE m.[Time] = t.tick AND NOT (? = N'[]' OR NOT EXISTS (
      SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
      WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
    ))
) here;

-- name: count_pending
-- most, horizon, since, paused, paused, source
SELECT COUNT_BIG(*) AS pending
FROM (
    SELECT TOP (?) 1 AS found
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
      AND m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
      AND (? = N'[]' OR NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
        WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
      ))
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ? AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) eligible;

-- name: count_present
-- messages
SELECT COUNT_BIG(*) AS present
FROM (
    SELECT TOP (2147483647) CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
        due varchar(27) '$.due', message_key uniqueidentifier '$.key'
    ) j
) t
JOIN [nsb].[dbo].[delayed] m WITH (NOLOCK) ON m.[Time] = t.tick AND m.[Id] = t.message_key;

-- name: count_present_by_id
-- keys, separator
SELECT COUNT_BIG(*) AS present
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Id] IN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: count_stored_since
-- since
SELECT COUNT_BIG(*) AS stored
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime));

-- name: count_timeless
SELECT COUNT_BIG(*) AS timeless FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK) WHERE d.[Time] IS NULL;

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
          AND i.type IN (1, 2) AND ic.key_ordinal = 1 AND LOWER(QUOTENAME(c.name)) = LOWER(N'[Time]')
    )
        CREATE NONCLUSTERED INDEX [Index_Time] ON [nsb].[dbo].[delayed] ([Time]);
END TRY
BEGIN CATCH
    EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';
    THROW;
END CATCH;
EXEC sys.sp_releaseapplock @Resource = N'[nsb].[dbo].[delayed]_lock', @LockOwner = 'Session';

-- name: describe_delayed
-- name
SELECT s.is_real AS deletes_expressions,
       CASE WHEN s.is_real = 1 AND EXISTS (
           SELECT 1
           FROM sys.indexes i
           JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id
           JOIN sys.columns c ON c.object_id = ic.object_id AND c.column_id = ic.column_id
           WHERE i.object_id = OBJECT_ID(?) AND i.is_disabled = 0 AND i.has_filter = 0
             AND i.type IN (1, 2) AND ic.key_ordinal = 1 AND LOWER(QUOTENAME(c.name)) = LOWER(N'[Time]')
       ) THEN 1 ELSE 0 END AS seeks
FROM (
    SELECT CASE WHEN CONVERT(int, SERVERPROPERTY('babelfish')) = 1 THEN 0 ELSE 1 END AS is_real
) s;

-- name: doctor_waiting
-- most
SELECT TOP (CONVERT(int, ?)) m.Headers AS headers, m.[Destination] AS destination
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Time] IS NOT NULL
ORDER BY m.[Time];

-- name: due_destinations
-- horizon, since, paused, paused, source
SELECT TOP (100) oldest.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT TOP (10000) m.[Destination] AS destination
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
      AND m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
      AND m.[Destination] <> N''
      AND (? = N'[]' OR NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
        WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
      ))
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ? AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
    ORDER BY m.[Time]
) oldest
GROUP BY oldest.destination
ORDER BY messages DESC, oldest.destination;

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
    WHERE m.[Time] = t.tick
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

-- name: fetch_next_due
-- source
SELECT TOP (1) l.message_key, CAST(CONVERT(datetime2(7), l.due) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), l.due)) AS instant_us,
       l.headers, l.body, l.destination, l.attempts
FROM (
    SELECT TOP (1600) LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, m.[Time] AS due, m.Headers AS headers,
           m.[State] AS body, m.[Destination] AS destination, 0 AS attempts
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE m.[Time] < GETUTCDATE()
    ORDER BY m.[Time]
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
SELECT LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, CAST(CONVERT(datetime2(7), m.[Time]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS instant_us,
       m.Headers AS headers, CASE WHEN ? = 1 THEN m.[State] END AS body,
       m.[Destination] AS destination, 0 AS attempts,
       COALESCE(DATALENGTH(m.[State]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Id] IN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: find_gone_attempts
-- source
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
    WHERE a.source = ? AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[delayed] d WITH (NOLOCK)
        WHERE d.[Time] = CAST(a.due_at AS datetime) AND d.[Id] = CONVERT(uniqueidentifier, a.message_key)
      )
) THEN 1 ELSE 0 END AS found;

-- name: find_pending
-- horizon, since, paused, paused, source
SELECT TOP (1) CONVERT(datetime2(7), m.[Time]) AS due
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime) AND m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND (? = N'[]' OR NOT EXISTS (
    SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
    WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
  ))
  AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
    WHERE a.source = ? AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
ORDER BY m.[Time];

-- name: follow_rescheduled
-- source
UPDATE a
SET due_at = d.[Time]
FROM [nsb].[dbo].[attempts] a
JOIN [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK)
  ON d.[Id] = CONVERT(uniqueidentifier, a.message_key)
WHERE a.source = ? AND (a.due_at IS NULL OR a.due_at <> d.[Time]);

-- name: gone_counters
-- most, source
SELECT TOP (?) a.message_key
FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
WHERE a.source = ? AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[delayed] d WITH (NOLOCK)
    WHERE d.[Id] = CONVERT(uniqueidentifier, a.message_key)
)
ORDER BY a.message_key;

-- name: hold
-- messages
SELECT CONVERT(nvarchar(250), m.[Id]) AS message_key,
       CAST(CONVERT(datetime2(7), m.[Time]) AS varchar(27)) AS due,
       DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS due_us,
       DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS instant_us, m.Headers AS headers,
       m.[State] AS body, m.[Destination] AS destination, 0 AS attempts
FROM (
    SELECT TOP (2147483647) CAST(CONVERT(datetime2(7), j.due, 121) AS datetime) AS tick, j.message_key
    FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
        due varchar(27) '$.due', message_key uniqueidentifier '$.key'
    ) j
) t
JOIN [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK) ON m.[Time] = t.tick AND m.[Id] = t.message_key;

-- name: hold_by_id
-- keys, separator
SELECT LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, CAST(CONVERT(datetime2(7), m.[Time]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS instant_us,
       m.Headers AS headers, m.[State] AS body, m.[Destination] AS destination, 0 AS attempts
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
WHERE m.[Id] IN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: locked_rows
-- horizon, horizon
SELECT everything.messages - visible.messages AS messages, CONVERT(datetime2(7), everything.due) AS due,
       NULL AS holder, NULL AS since
FROM (
    SELECT COUNT_BIG(*) AS messages, MIN(m.due) AS due
    FROM (
        SELECT TOP (10000) m.[Time] AS due FROM [nsb].[dbo].[delayed] m WITH (NOLOCK) WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Time]
    ) m
) everything
CROSS JOIN (
    SELECT COUNT_BIG(*) AS messages
    FROM (
        SELECT TOP (10000) m.[Time] AS due FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
        WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
        ORDER BY m.[Time]
    ) m
) visible;

-- name: look
-- first, end, end, end
SELECT LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, CAST(CONVERT(datetime2(7), m.[Time]) AS varchar(27)) AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), m.[Time])) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, m.[Destination] AS destination,
       0 AS attempts, COALESCE(DATALENGTH(m.[State]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
  AND m.[Time] <= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('99991231 23:59:59.997' AS datetime))
  AND (CAST(CONVERT(datetime2(7), ?, 121) AS datetime) IS NULL OR m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime))
ORDER BY m.[Time]
OPTION (FAST 1000);

-- name: look_timeless
SELECT LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, CONVERT(varchar(27), NULL) AS due,
       CONVERT(bigint, NULL) AS due_us, CONVERT(bigint, NULL) AS instant_us,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, m.[Destination] AS destination,
       0 AS attempts, COALESCE(DATALENGTH(m.[State]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (NOLOCK)
WHERE m.[Time] IS NULL;

-- name: move_recoverable_span
-- cut, cut, keys, separator, messages
INSERT INTO [nsb].[dbo].[queue] (Id, Recoverable, Headers, Body)
SELECT NEWID(), 1, CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[State]
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[Id]
WHERE m.[Time] >= @First AND m.[Time] <= @Last
ORDER BY m.[Time]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;

-- name: move_span
-- cut, cut, keys, separator, messages
INSERT INTO [nsb].[dbo].[queue] (Id, Headers, Body)
SELECT NEWID(), CASE WHEN ? = 0 THEN m.Headers ELSE LEFT(m.Headers, LEN(m.Headers) - ?) + NCHAR(125) END, m.[State]
FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
JOIN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
) k (message_key)
  ON k.message_key = m.[Id]
WHERE m.[Time] >= @First AND m.[Time] <= @Last
ORDER BY m.[Time]
OPTION (HASH JOIN);
IF @@ROWCOUNT <> ? THROW 50000, N'a queue did not take each message that was read: others have some, or it drops some', 1;

-- name: next_due
-- since
SELECT (
    SELECT CONVERT(datetime2(7), MIN(m.[Time]))
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
) AS due;

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
            SELECT m.[Time] AS due, m.[Id] AS message_key,
                   ROW_NUMBER() OVER (ORDER BY m.[Time], m.[Id]) - 1 AS position,
                   COUNT_BIG(*) OVER () AS total
            FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.[Time] < CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
              AND m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
              AND (? = N'[]' OR NOT EXISTS (
                SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (fits nvarchar(max) '$') p
                WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
              ))
              AND NOT EXISTS (
                SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
                WHERE a.source = ? AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
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
            SELECT TOP (CONVERT(bigint, <sql>)) m.[Time] AS due, m.[Id] AS message_key,
                   COALESCE(DATALENGTH(m.Headers), 0) + COALESCE(DATALENGTH(m.[State]), 0) AS bytes
            FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.[Time] < CAST(CONVERT(datetime2(7), N'', 121) AS datetime)
              AND m.[Time] >= s.first_due AND m.[Time] <= s.end_due
              AND (m.[Time] > s.first_due OR m.[Id] >= s.first_key)
              AND (m.[Time] < s.end_due OR m.[Id] < s.end_key)
              AND (<sql> = N'[]' OR NOT EXISTS (
                SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), <sql>)) WITH (fits nvarchar(max) '$') p
                WHERE COALESCE(m.[Destination], N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
              ))
              AND NOT EXISTS (
                SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
                WHERE a.source = N'' AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
                  AND a.next_attempt_at > SYSUTCDATETIME()
              )
        ) pending
    ) k
    GROUP BY k.position / CONVERT(bigint, <sql>)
) chunk

-- name: prune_attempts
-- source
DELETE TOP (1000) FROM [nsb].[dbo].[attempts] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE source = ?
  AND NOT EXISTS (
    SELECT 1 FROM [nsb].[dbo].[delayed] d
    WHERE d.[Time] = CAST(due_at AS datetime) AND d.[Id] = CONVERT(uniqueidentifier, message_key)
  );

-- name: raise_retry_counts
-- keys, separator
UPDATE [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET RetryCount = RetryCount + 1
WHERE [Id] IN (
    SELECT k.[value] COLLATE DATABASE_DEFAULT FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);

-- name: read_span
-- most
SELECT TOP (?) LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key, CAST(CONVERT(datetime2(7), m.[Time]) AS varchar(27)) AS due, m.Headers AS headers,
       m.[Destination] AS destination, COALESCE(DATALENGTH(m.[State]), 0) AS body_bytes
FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
WHERE m.[Time] >= @First AND m.[Time] <= @Last;

-- name: remove
-- messages
DELETE d
FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key uniqueidentifier '$.key'
) k
  ON d.[Time] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[Id] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: remove_by_id
-- keys, separator
DELETE FROM [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [Id] IN (
    SELECT CONVERT(uniqueidentifier, k.[value])
    FROM STRING_SPLIT(CONVERT(nvarchar(max), ?), CONVERT(nchar(1), ?)) k
);
SELECT @@ROWCOUNT AS messages;

-- name: remove_first
-- due, rows, source, kept
SET NOCOUNT ON;
DECLARE @Gone TABLE (message_key nvarchar(250));
DECLARE @Tick datetime = CAST(CONVERT(datetime2(7), ?, 121) AS datetime);
WITH firsts AS (
    SELECT TOP (?) m.[Id]
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.[Time] = @Tick
      AND NOT EXISTS (
        SELECT 1 FROM [nsb].[dbo].[attempts] a WITH (READPAST, READCOMMITTEDLOCK)
        WHERE a.source = ?
          AND a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), ?)) WITH (message_key uniqueidentifier '$') k
        WHERE k.message_key = m.[Id]
      )
)
DELETE firsts OUTPUT deleted.[Id] INTO @Gone FROM firsts;
SET NOCOUNT OFF;
SELECT g.message_key FROM @Gone g;

-- name: remove_span
-- most, messages
DELETE TOP (?) FROM [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
WHERE [Time] >= @First AND [Time] <= @Last;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;

-- name: reschedule
-- messages
UPDATE d
SET [Time] = CAST(CONVERT(datetime2(7), k.new_due, 121) AS datetime)
FROM [nsb].[dbo].[delayed] d WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK)
JOIN OPENJSON(CONVERT(nvarchar(max), ?)) WITH (
    due varchar(27) '$.due', message_key uniqueidentifier '$.key', new_due varchar(27) '$.new_due'
) k
  ON d.[Time] = CAST(CONVERT(datetime2(7), k.due, 121) AS datetime) AND d.[Id] = k.message_key;
SELECT @@ROWCOUNT AS messages;

-- name: reschedule_by_id
-- new_due, message_key
UPDATE [nsb].[dbo].[delayed] WITH (READPAST, READCOMMITTEDLOCK, ROWLOCK)
SET [Time] = CAST(CONVERT(datetime2(7), ?, 121) AS datetime)
WHERE [Id] = CONVERT(uniqueidentifier, ?);
SELECT @@ROWCOUNT AS messages;

-- name: seek_and_remove_span
-- most, messages
WITH span AS (
    SELECT TOP (?) m.[Id]
    FROM [nsb].[dbo].[delayed] m WITH (UPDLOCK, READPAST, ROWLOCK, FORCESEEK)
    WHERE m.[Time] >= @First AND m.[Time] <= @Last
)
DELETE FROM span;
IF @@ROWCOUNT <> ? THROW 50000, N'others came among the messages', 1;

-- name: stored_destinations
SELECT TOP (1000) stored.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT m.[Destination] AS destination
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Destination] <> N'' AND m.[Time] IS NOT NULL
) stored
GROUP BY stored.destination
ORDER BY messages DESC, stored.destination;

-- name: stored_keys
SELECT LOWER(CAST(m.[Id] AS nvarchar(250))) AS message_key FROM [nsb].[dbo].[delayed] m WITH (NOLOCK);

-- name: upcoming
-- since, source, since
SELECT (
    SELECT CONVERT(datetime2(7), MIN(m.[Time]))
    FROM [nsb].[dbo].[delayed] m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.[Time] >= COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime))
) AS due, COUNT_BIG(*) AS messages, MIN(a.next_attempt_at) AS next_attempt
FROM [nsb].[dbo].[attempts] a WITH (NOLOCK)
JOIN [nsb].[dbo].[delayed] m WITH (NOLOCK) ON a.message_key = LOWER(CAST(m.[Id] AS nvarchar(250))) COLLATE DATABASE_DEFAULT
WHERE a.source = ? AND a.next_attempt_at > SYSUTCDATETIME() AND m.[Time] < COALESCE(CAST(CONVERT(datetime2(7), ?, 121) AS datetime), CAST('17530101' AS datetime));
