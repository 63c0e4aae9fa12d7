-- Raises the messages' own counters, as the MSMQ transport does; their locks are held.
UPDATE d
SET RetryCount = d.RetryCount + 1
FROM OPENJSON(@keys) WITH (message_key {key_type} '$') k
INNER LOOP JOIN {delayed} d WITH (ROWLOCK)
  ON d.{key} = k.message_key COLLATE DATABASE_DEFAULT;
