-- Returns at most @rows messages of a span of Due that are due, oldest first, locked: row locks only,
-- and on 4,000 rows at the most, under the 5,000 at which SQL Server would lock the table. Skips what
-- others hold. Leaves out known failures that are not ripe, and the keys @passed_over.
SELECT TOP (@rows) d.message_key, CONVERT(varchar(23), d.due, 121) AS due,
       d.headers, d.body, d.destination, d.attempts
FROM (
    SELECT TOP (4000) m.{key} AS message_key, m.{due} AS due, m.Headers AS headers,
           m.{body} AS body, {destination} AS destination, {retry_count} AS attempts
    FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.{due} >= CONVERT(datetime, @first, 121) AND m.{due} <= CONVERT(datetime, @last, 121)
      AND m.{due} < CONVERT(datetime, @horizon, 121)
    ORDER BY m.{due}
) d
WHERE NOT EXISTS (
    SELECT 1 FROM {attempts} a
    WHERE a.source = @source
      AND a.message_key = CONVERT(nvarchar(250), d.message_key) COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
  AND NOT EXISTS (
    SELECT 1 FROM OPENJSON(@passed_over) WITH (message_key nvarchar(250) '$') p
    WHERE p.message_key = CONVERT(nvarchar(250), d.message_key) COLLATE DATABASE_DEFAULT
  )
ORDER BY d.due;
