-- Returns a message's key if it is (still) there with its Due, locked.
SELECT d.{key} AS message_key
FROM {delayed} d WITH (UPDLOCK, ROWLOCK)
WHERE d.{due} = CONVERT(datetime2(7), @due, 121) AND d.{key} = CONVERT({key_type}, @message_key){collate};
