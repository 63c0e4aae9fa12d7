-- Drops a bounded number of the retry counters of messages that are gone.
DELETE TOP (1000) a
FROM {attempts} a
WHERE a.source = @source AND NOT EXISTS (
    SELECT 1 FROM {delayed} d
    WHERE d.{due} = a.due AND d.{key} = CONVERT({key_type}, a.message_key)
  );
