-- Drops a bounded number of the retry counters of messages that are gone.
DELETE TOP (1000) FROM {attempts}
WHERE source = @source
  AND NOT EXISTS (
    SELECT 1 FROM {delayed} d
    WHERE d.{due} = due_at AND d.{key} = CONVERT({key_type}, message_key){collate}
  );
