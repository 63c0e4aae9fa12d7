-- Returns how many messages are eligible. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS pending
FROM {delayed} m WITH (READPAST)
WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
  AND m.{due} >= CONVERT(datetime2(7), @since, 121)
  AND NOT EXISTS (
    SELECT 1 FROM {attempts} a
    WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  );
