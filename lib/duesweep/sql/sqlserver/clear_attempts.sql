-- Drops the retry counters of messages that leave; the messages' locks are held.
DELETE a
FROM {attempts} a
JOIN OPENJSON(@keys) WITH (message_key nvarchar(250) '$') k
  ON a.message_key = k.message_key COLLATE DATABASE_DEFAULT
WHERE a.source = @source;
