-- Removes the first @rows messages of a span of Due that nobody else holds; returns their keys, for the
-- caller to compare with what it has claimed. Row locks only; no key is indexed, so that this costs
-- the same however many messages share one Due.
DELETE TOP (@rows) FROM {delayed} WITH (READPAST, ROWLOCK)
OUTPUT deleted.{key} AS message_key
WHERE {due} >= CONVERT(datetime, @first, 121) AND {due} <= CONVERT(datetime, @last, 121)
  AND NOT EXISTS (
    SELECT 1 FROM {attempts} a
    WHERE a.source = @source
      AND a.message_key = CONVERT(nvarchar(250), {key}) COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  )
  AND NOT EXISTS (
    SELECT 1 FROM OPENJSON(@kept) WITH (message_key {key_type} '$') k WHERE k.message_key = {key}
  );
