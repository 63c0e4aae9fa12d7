-- Gives the retry counters of messages that have another Due by now that Due. Reads all of the delayed
-- table, so it is to be run only where `find_gone_attempts` found something.
UPDATE a
SET due_at = d.{due}
FROM {attempts} a
JOIN {delayed} d WITH (READPAST)
  ON d.{key} = CONVERT({key_type}, a.message_key){collate}
WHERE a.source = @source AND (a.due_at IS NULL OR a.due_at <> d.{due});
