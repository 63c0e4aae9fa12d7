-- Removes claimed messages by their Dues and keys; their locks are held, others' rows are passed by. No
-- key is indexed: each takes a look at all messages of its Due.
DELETE d
FROM {delayed} d WITH (READPAST, ROWLOCK)
JOIN OPENJSON(CONVERT(nvarchar(max), @messages)) WITH (
    due varchar(27) '$.due', message_key {key_type} '$.key'
) k
  ON d.{due} = CONVERT(datetime2(7), k.due, 121) AND d.{key} = k.message_key;
