-- Plan: the horizon, due and eligible messages, and how they are cut into slices. In a sweep's order.

-- fragment: tick
-- A Due travels as text that is exact to the tick, 1/300 s, and is compared as a `datetime`: for a `datetime2` the
-- server would convert the column, and not every server then uses the index on it.
CAST(CONVERT(datetime2(7), $1, 121) AS datetime)

-- fragment: tick_text
-- In style 121, which is the default of a `datetime2`; some servers take three times as long if it is named.
CAST(CONVERT(datetime2(7), $1) AS varchar(27))

-- fragment: due_and_instant
-- Its text leads to the row again. It is UTC's, so it is the instant itself.
{{tick_text: $1}} AS due,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), $1)) AS due_us,
DATEDIFF_BIG(microsecond, '19700101', CONVERT(datetime2(7), $1)) AS instant_us

-- fragment: since
-- The first `datetime` if it is NULL.
COALESCE({{tick: @since}}, CAST('17530101' AS datetime))

-- fragment: from_since
m.{due} >= {{since}}

-- name: horizon
-- Returns the horizon by NServiceBus's own predicate, Due < GETUTCDATE(): the server's time.
SELECT CONVERT(datetime2(7), GETUTCDATE()) AS horizon;

-- fragment: not_paused
-- As far as LIKE can tell; the task looks again.
($1 = N'[]' OR NOT EXISTS (
  SELECT 1 FROM OPENJSON(CONVERT(nvarchar(max), $1)) WITH (fits nvarchar(max) '$') p
  WHERE COALESCE({pausable}, N'') COLLATE Latin1_General_BIN2 LIKE p.fits ESCAPE N'\'
))

-- fragment: eligible
{{not_paused: $1}}
AND NOT EXISTS (
  SELECT 1 FROM {attempts} a WITH (READPAST, READCOMMITTEDLOCK)
  WHERE a.source = $2 AND a.message_key = {key_text} COLLATE DATABASE_DEFAULT
    AND a.next_attempt_at > SYSUTCDATETIME()
)

-- name: find_pending
-- Returns the Due of the eligible message that has been due longest, from @since on; no row if none is eligible.
SELECT TOP (1) CONVERT(datetime2(7), m.{due}) AS due
FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
WHERE m.{due} < {{tick: @horizon}} AND {{from_since}}
  AND {{eligible: @paused; @source}}
ORDER BY m.{due};

-- name: count_pending
-- Returns how many messages are due and eligible. Stops at `most`.
SELECT COUNT_BIG(*) AS pending
FROM (
    SELECT TOP (@most) 1 AS found
    FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.{due} < {{tick: @horizon}}
      AND {{from_since}}
      AND {{eligible: @paused; @source}}
) eligible;

-- name: count_timeless
-- Returns how many messages have no Time. They never become due.
SELECT COUNT_BIG(*) AS timeless FROM {delayed} d WITH (READPAST, READCOMMITTEDLOCK) WHERE d.{due} IS NULL;

-- fragment: first_due
-- The earliest Due from @since on; NULL: none.
(
    SELECT CONVERT(datetime2(7), MIN(m.{due}))
    FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE {{from_since}}
)

-- name: next_due
-- Returns the earliest Due from @since on. Dues are UTC's, whatever @zone is.
SELECT {{first_due}} AS due;

-- name: upcoming
-- Returns the same, whatever @zone is; how many earlier messages are in back-off, and when the first of them is tried
-- again.
SELECT {{first_due}} AS due, COUNT_BIG(*) AS messages, MIN(a.next_attempt_at) AS next_attempt
FROM {attempts} a WITH (NOLOCK)
JOIN {delayed} m WITH (NOLOCK) ON a.message_key = {key_text} COLLATE DATABASE_DEFAULT
WHERE a.source = @source AND a.next_attempt_at > SYSUTCDATETIME() AND m.{due} < {{since}};

-- name: locked_rows
-- Returns how many due messages other sessions have locked, and the earliest Due of all; counts up to 10,000. Only a
-- login with VIEW SERVER STATE may ask which session it is.
SELECT everything.messages - visible.messages AS messages, CONVERT(datetime2(7), everything.due) AS due,
       NULL AS holder, NULL AS since
FROM (
    SELECT COUNT_BIG(*) AS messages, MIN(m.due) AS due
    FROM (
        SELECT TOP (10000) m.{due} AS due FROM {delayed} m WITH (NOLOCK) WHERE m.{due} < {{tick: @horizon}}
        ORDER BY m.{due}
    ) m
) everything
CROSS JOIN (
    SELECT COUNT_BIG(*) AS messages
    FROM (
        SELECT TOP (10000) m.{due} AS due FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
        WHERE m.{due} < {{tick: @horizon}}
        ORDER BY m.{due}
    ) m
) visible;

-- name: count_stored
-- Returns how many messages the store holds.
SELECT COUNT_BIG(*) AS stored FROM {delayed} m WITH (NOLOCK);

-- name: count_stored_since
-- Returns how many messages have this Due or a later one.
SELECT COUNT_BIG(*) AS stored
FROM {delayed} m WITH (NOLOCK)
WHERE {{from_since}};

-- name: due_destinations
-- Returns the destinations of the 10,000 eligible messages that have been due longest, and how many go to
-- each: at most 100, the most frequent first.
SELECT TOP (100) oldest.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT TOP (10000) {destination} AS destination
    FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE m.{due} < {{tick: @horizon}}
      AND {{from_since}}
      AND {destination} <> N''
      AND {{eligible: @paused; @source}}
    ORDER BY m.{due}
) oldest
GROUP BY oldest.destination
ORDER BY messages DESC, oldest.destination;

-- name: stored_destinations
-- Returns the destinations of all messages with a Due, and how many go to each: at most 1,000, in
-- descending order of their messages. Reads the whole table.
SELECT TOP (1000) stored.destination, COUNT_BIG(*) AS messages
FROM (
    SELECT {destination} AS destination
    FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
    WHERE {destination} <> N'' AND m.{due} IS NOT NULL
) stored
GROUP BY stored.destination
ORDER BY messages DESC, stored.destination;

-- name: estimate_rows
-- Returns about how many rows a table holds, by the counts that the server keeps. It needs the quoted name only, not
-- @schema and @table.
SELECT COALESCE(SUM(p.rows), 0) AS rows
FROM sys.partitions p
WHERE p.object_id = OBJECT_ID(@name) AND p.index_id IN (0, 1);

-- name: plan_bounds
-- Returns the first Due and place (the key) of each slice and the last of all, and how many messages are eligible in
-- all and in a slice. Slices are equal: `slices` at most, fewer if below `least_rows`, more if above `most_rows`.
SELECT {{tick_text: sliced.due}} AS due,
       CONVERT(nvarchar(250), sliced.message_key) AS place, sliced.total, sliced.size
FROM (
    SELECT useful.due, useful.message_key, useful.position, useful.total,
           (useful.total - 1) / CASE WHEN useful.slices < (useful.total - 1) / @most_rows + 1
                                     THEN (useful.total - 1) / @most_rows + 1 ELSE useful.slices END + 1 AS size
    FROM (
        SELECT pending.due, pending.message_key, pending.position, pending.total,
               CASE WHEN @slices < (pending.total - 1) / @least_rows + 1
                    THEN @slices ELSE (pending.total - 1) / @least_rows + 1 END AS slices
        FROM (
            SELECT m.{due} AS due, m.{key} AS message_key,
                   ROW_NUMBER() OVER (ORDER BY m.{due}, m.{key}) - 1 AS position,
                   COUNT_BIG(*) OVER () AS total
            FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.{due} < {{tick: @horizon}}
              AND {{from_since}}
              AND {{eligible: @paused; @source}}
        ) pending
    ) useful
) sliced
WHERE sliced.position % sliced.size = 0 OR sliced.position = sliced.total - 1
ORDER BY sliced.position;

-- name: plan_claim_keys
-- Returns the Dues and bytes (of `most` messages at most), oldest first, in numbered rows of `chunk`, and how many the
-- slice has. An empty slice has a row: so a task can tell it from a read that broke off.
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.chunk
FROM (VALUES {bounds}) AS s (slice, first_due, first_key, end_due, end_key)
OUTER APPLY (
    SELECT STRING_AGG(CONVERT(varchar(max), {{tick_text: k.due}}), ',')
               WITHIN GROUP (ORDER BY k.position) AS claim_keys,
           STRING_AGG(CONVERT(varchar(max), k.bytes), ',')
               WITHIN GROUP (ORDER BY k.position) AS sizes,
           SUM(COUNT_BIG(*)) OVER () AS total,
           k.position / CONVERT(bigint, {chunk}) AS chunk
    FROM (
        SELECT pending.due, pending.bytes,
               ROW_NUMBER() OVER (ORDER BY pending.due, pending.message_key) - 1 AS position
        FROM (
            SELECT TOP (CONVERT(bigint, {most})) m.{due} AS due, m.{key} AS message_key,
                   COALESCE(DATALENGTH(m.Headers), 0) + COALESCE(DATALENGTH(m.{body}), 0) AS bytes
            FROM {delayed} m WITH (READPAST, READCOMMITTEDLOCK)
            WHERE m.{due} < {{tick: {horizon}}}
              AND m.{due} >= s.first_due AND m.{due} <= s.end_due
              AND (m.{due} > s.first_due OR m.{key} >= s.first_key)
              AND (m.{due} < s.end_due OR m.{key} < s.end_key)
              AND {{eligible: {paused}; {source}}}
        ) pending
    ) k
    GROUP BY k.position / CONVERT(bigint, {chunk})
) chunk

-- name: read_slice
-- Returns the claim keys of one slice, as `plan_claim_keys` does.
SELECT claim_keys, sizes, total FROM ({query}) AS due_messages WHERE slice = {slice} ORDER BY chunk;
