-- Removes the first @rows messages of a span of Due that nobody else holds; returns their keys, for the
-- caller to compare with what it has claimed. Row locks only; no key is indexed, so that this costs
-- the same however many messages share one Due.
WITH span AS (
    SELECT TOP (@rows) d.{key}
    FROM {delayed} d WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE d.{due} >= CONVERT(datetime2(7), @first, 121) AND d.{due} <= CONVERT(datetime2(7), @last, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source
          AND a.message_key = CONVERT(nvarchar(250), d.{key}) COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM STRING_SPLIT(@kept, @separator) k
        WHERE CONVERT({key_type}, k.[value]) = d.{key}
      )
    ORDER BY d.{due}
)
DELETE span OUTPUT deleted.{key} AS message_key FROM span;
