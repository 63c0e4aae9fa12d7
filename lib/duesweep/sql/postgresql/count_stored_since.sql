-- Returns how many messages have a Due from then on. No locks.
SELECT count(*) AS stored FROM {delayed} d WHERE d.{due} >= %(since)s::timestamptz{utc};
