-- Removes claimed messages by their keys, which are indexed; their locks are held.
DELETE d
FROM OPENJSON(@keys) WITH (message_key {key_type} '$') k
INNER LOOP JOIN {delayed} d WITH (ROWLOCK)
  ON d.{key} = k.message_key COLLATE DATABASE_DEFAULT;
