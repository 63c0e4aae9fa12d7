-- Returns whether a message is eligible. Skips what others hold; keeps no locks.
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) THEN 1 ELSE 0 END AS found;
