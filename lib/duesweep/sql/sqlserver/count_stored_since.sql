-- Returns how many messages have a Due from then on. What others hold counts, too; no locks.
SELECT COUNT_BIG(*) AS stored
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} >= CONVERT(datetime2(7), @since, 121);
