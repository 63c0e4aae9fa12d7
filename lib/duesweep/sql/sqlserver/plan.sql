-- Plan: the horizon, what is due and eligible, and how it is cut into slices. In the order of a sweep.

-- name: horizon
-- Returns the moment before which NServiceBus's own predicate (Due < GETUTCDATE()) calls a message due,
-- which is the server's time, to the tick.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), GETUTCDATE()), 121) AS horizon;

-- name: find_pending
-- Returns whether a message is eligible. Skips what others hold; keeps no locks.
SELECT CASE WHEN EXISTS (
    SELECT 1
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) THEN 1 ELSE 0 END AS found;

-- name: count_pending
-- Returns how many messages are eligible. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS pending
FROM {delayed} m WITH (READPAST)
WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
  AND m.{due} >= CONVERT(datetime2(7), @since, 121)
  AND NOT EXISTS (
    SELECT 1 FROM {attempts} a
    WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
      AND a.next_attempt_at > SYSUTCDATETIME()
  );

-- name: count_timeless
-- Returns how many messages have no Time, and so are never due. Skips what others hold; keeps no locks.
SELECT COUNT_BIG(*) AS timeless FROM {delayed} d WITH (READPAST) WHERE d.{due} IS NULL;

-- name: count_stored
-- Returns how many messages there are. What others hold counts, too; no locks.
SELECT COUNT_BIG(*) AS stored FROM {delayed} m WITH (NOLOCK);

-- name: count_stored_since
-- Returns how many messages have a Due from then on. What others hold counts, too; no locks.
SELECT COUNT_BIG(*) AS stored
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} >= CONVERT(datetime2(7), @since, 121);

-- name: due_destinations
-- Returns where the messages go that are eligible, of the 10,000 that have been due for the
-- longest, and how many go there; at most 100, the commonest first. Skips what others hold; keeps no
-- locks.
SELECT TOP (100) oldest.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT TOP (10000) {destination} AS destination
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND m.{due} >= CONVERT(datetime2(7), @since, 121)
      AND {destination} <> N''
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
    ORDER BY m.{due}
) oldest
GROUP BY oldest.destination
ORDER BY messages DESC, oldest.destination;

-- name: stored_destinations
-- Returns where all messages with a Due go, and how many go there; at most 1,000, the commonest first.
-- Skips what others hold; keeps no locks.
SELECT TOP (1000) stored.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT {destination} AS destination
    FROM {delayed} m WITH (READPAST)
    WHERE {destination} <> N'' AND m.{due} IS NOT NULL
) stored
GROUP BY stored.destination
ORDER BY messages DESC, stored.destination;

-- name: estimate_rows
-- Returns about how many rows a table has, as the server keeps count. No locks.
SELECT COALESCE(SUM(p.rows), 0) AS rows
FROM sys.partitions p
WHERE p.object_id = OBJECT_ID(@table) AND p.index_id IN (0, 1);

-- name: plan_bounds
-- Returns the first (due, key) of each of at most @slices slices of equal size, and how many messages
-- are eligible in all. Ordered by the pair, so that one Due can span slices. Skips what others
-- hold; keeps no locks.
SELECT CONVERT(varchar(27), CONVERT(datetime2(7), p.due), 121) AS due,
       CONVERT(nvarchar(250), p.message_key) AS id, p.total
FROM (
    SELECT m.{due} AS due, m.{key} AS message_key,
           ROW_NUMBER() OVER (ORDER BY m.{due}, m.{key}) - 1 AS position,
           COUNT_BIG(*) OVER () AS total
    FROM {delayed} m WITH (READPAST)
    WHERE m.{due} < CONVERT(datetime2(7), @horizon, 121)
      AND m.{due} >= CONVERT(datetime2(7), @since, 121)
      AND NOT EXISTS (
        SELECT 1 FROM {attempts} a
        WHERE a.source = @source AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
          AND a.next_attempt_at > SYSUTCDATETIME()
      )
) p
WHERE p.position % ((p.total + @slices - 1) / @slices) = 0
ORDER BY p.position;

-- name: plan_claim_keys
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
