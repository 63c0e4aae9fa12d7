-- Returns how many messages have a Due from then on. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS stored
FROM {delayed} m WITH (READPAST)
WHERE m.{due} >= CONVERT(datetime2(7), @since, 121);
