-- Returns whether there are retry counters of messages that are gone, or have another Due by now. By
-- Due, since no other column of the transport's table is indexed. Keeps no locks.
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM {attempts} a
    WHERE a.source = @source AND NOT EXISTS (
        SELECT 1 FROM {delayed} d
        WHERE d.{due} = a.due_at AND d.{key} = CONVERT({key_type}, a.message_key){collate}
      )
) THEN 1 ELSE 0 END AS found;
