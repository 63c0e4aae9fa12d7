-- Returns the Dues of what is eligible, oldest first, a thousand to a row: `claim_keys` and, in bytes,
-- `sizes`, each separated by commas; `total` is how many the slice has in all its rows. A slice without
-- Dues has a row, too. Due travels as text, to the tick: no driver's rounding has a
-- say. For JDBC, as a subquery whose `slice` is a partition's predicate; {horizon} and {source} are
-- literals, and so is what takes the place of the comment. Skips what others hold; keeps no locks.
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total
FROM (VALUES /* bounds */) AS s (slice, first_due, first_key, end_due, end_key)
OUTER APPLY (
    SELECT STRING_AGG(CONVERT(varchar(max), CONVERT(varchar(27), CONVERT(datetime2(7), k.due), 121)), ',')
               WITHIN GROUP (ORDER BY k.position) AS claim_keys,
           STRING_AGG(CONVERT(varchar(max), k.bytes), ',')
               WITHIN GROUP (ORDER BY k.position) AS sizes,
           SUM(COUNT_BIG(*)) OVER () AS total
    FROM (
        SELECT m.{due} AS due,
               COALESCE(DATALENGTH(m.Headers), 0) + COALESCE(DATALENGTH(m.{body}), 0) AS bytes,
               ROW_NUMBER() OVER (ORDER BY m.{due}, m.{key}) - 1 AS position
        FROM {delayed} m WITH (READPAST)
        WHERE m.{due} < CONVERT(datetime2(7), {horizon}, 121)
          AND m.{due} >= s.first_due AND m.{due} <= s.end_due
          AND (m.{due} > s.first_due OR m.{key} >= s.first_key)
          AND (m.{due} < s.end_due OR m.{key} < s.end_key)
          AND NOT EXISTS (
            SELECT 1 FROM {attempts} a
            WHERE a.source = {source} AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
              AND a.next_attempt_at > SYSUTCDATETIME()
          )
    ) k
    GROUP BY k.position / 1000
) chunk
