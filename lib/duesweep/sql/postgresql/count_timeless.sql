-- Returns how many messages have no Time, and so are never due. No locks.
SELECT count(*) AS timeless FROM {delayed} d WHERE d.{due} IS NULL;
