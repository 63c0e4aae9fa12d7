-- Returns messages of these Dues, as many of each as is asked for, that are due, locked: row locks only,
-- and on 2,000 rows of a Due at the most, with their pages under the 5,000 locks at which SQL Server
-- would lock the table.
-- Skips what others hold. Leaves out known failures that are not eligible, and the keys @excluded.
-- An item of @dues is a Due and how many of it are wanted.
SELECT d.message_key, CONVERT(varchar(27), CONVERT(datetime2(7), d.due), 121) AS due,
       d.headers, d.body, d.destination, d.attempts
FROM OPENJSON(CONVERT(nvarchar(max), @dues)) WITH (due varchar(27) '$.due', wanted int '$.wanted') t
CROSS APPLY (
    SELECT TOP (t.wanted) l.message_key, l.due, l.headers, l.body, l.destination, l.attempts
    FROM (
        SELECT TOP (2000) {key_text} AS message_key, m.{due} AS due, m.Headers AS headers,
               m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
        FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
        WHERE m.{due} = CONVERT(datetime2(7), t.due, 121)
          AND m.{due} < CONVERT(datetime2(7), @horizon, 121)
    ) l
    WHERE NOT EXISTS (
        SELECT 1 FROM {attempts} a WITH (READPAST)
        WHERE a.source = @source
          AND a.message_key = l.message_key COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(CONVERT(nvarchar(max), @excluded), CONVERT(nchar(1), @separator)) p
        WHERE p.[value] = l.message_key COLLATE DATABASE_DEFAULT
      )
) d;
