-- Returns where the messages go that are eligible, of the 10,000 that have been due for the
-- longest, and how many go there; at most 100, the commonest first. Skips what others hold; keeps no
-- locks.
SELECT TOP (100) oldest.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT TOP (10000) {destination} AS destination
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND m.{due} >= CONVERT(datetime2(7), @since, 121)
      AND {destination} <> N''
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
    ORDER BY m.{due}
) oldest
GROUP BY oldest.destination
ORDER BY messages DESC, oldest.destination;
