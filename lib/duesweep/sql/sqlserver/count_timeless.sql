-- Returns how many messages have no Time, and so are never due. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS timeless FROM {delayed} d WITH (READPAST) WHERE d.{due} IS NULL;
