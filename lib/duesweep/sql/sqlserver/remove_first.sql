-- Removes the first @rows messages of a Due that nobody else holds; returns their keys, for the caller
-- to compare with what it has claimed. Row locks only; no key is indexed, so that this costs the same
-- however many messages share the Due. By way of a table, since triggers allow no other OUTPUT.
SET NOCOUNT ON;
DECLARE @Gone TABLE (message_key nvarchar(250));
WITH firsts AS (
    SELECT TOP (@rows) m.{key}
    FROM {delayed} m WITH (UPDLOCK, READPAST, ROWLOCK)
    WHERE m.{due} = CONVERT(datetime2(7), @due, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a WITH (READPAST)
        WHERE a.source = @source
          AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
      AND NOT EXISTS (
        SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), @kept)) WITH (message_key {key_type} '$') k
        WHERE k.message_key = m.{key}
      )
)
DELETE firsts OUTPUT deleted.{key} INTO @Gone FROM firsts;
SET NOCOUNT OFF;
SELECT g.message_key FROM @Gone g;
