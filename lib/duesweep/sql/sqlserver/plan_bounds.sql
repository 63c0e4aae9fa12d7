-- Returns the first (due, key) of each of at most @slices slices of equal size, and how many messages
-- are eligible in all. Ordered by the pair, so that one Due can span slices. Skips what others
-- hold; keeps no locks.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), p.due), 121) AS due,
       CONVERT(nvarchar(250), p.message_key) AS id, p.total
FROM (
    SELECT m.{due} AS due, m.{key} AS message_key,
           ROW_NUMBER() OVER (ORDER BY m.{due}, m.{key}) - 1 AS position,
           COUNT_BIG(*) OVER () AS total
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND m.{due} >= CONVERT(datetime2(7), @since, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) p
WHERE p.position % ((p.total + @slices - 1) / @slices) = 0
ORDER BY p.position;
