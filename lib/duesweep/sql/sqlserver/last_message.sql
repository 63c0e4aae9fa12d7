-- Returns the number of the newest message of a queue; 0 where it is empty. Skips what others hold;
-- keeps no locks.
SELECT COALESCE(MAX(q.RowVersion), 0) AS number FROM {queue} q WITH (READPAST);
