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
