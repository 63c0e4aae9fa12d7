-- Drops the retry counters of messages that leave; the messages' locks are held.
DELETE a
FROM {attempts} a
JOIN STRING_SPLIT(CONVERT(nvarchar(max), @keys), CONVERT(nchar(1), @separator)) k
  ON a.message_key = k.[value] COLLATE DATABASE_DEFAULT
WHERE a.source = @source;
