-- Look: what an operator is shown of waiting messages. These statements read only, with NOLOCK: they
-- take no locks on rows, so no sweep and no mover waits for them, and they wait for none. So they show
-- rows that others hold, and some that are not committed yet; one that moves meanwhile may be
-- missed. Whoever changes a message locks it first.

-- name: look
-- Returns the messages with a Due from @first to @last, both included, those with the earliest Due
-- first. There is no other order within one Due: then the server would have to sort all messages that
-- share it. The hint has it read the index on Due, for the first rows matter. `body` is NULL. Reads
-- what others have not committed yet; keeps no locks.
SELECT {key_text} AS message_key, {{tick_text: m.{due}}} AS due,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, {destination} AS destination,
       {retry_count} AS attempts, COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} >= {{tick: @first}}
  AND m.{due} <= {{tick: @last}}
ORDER BY m.{due}
OPTION (FAST 1000);

-- name: look_timeless
-- Returns the messages without a Due, as `look` does. Reads what others have not committed yet; keeps
-- no locks.
SELECT {key_text} AS message_key, CONVERT(varchar(27), NULL) AS due,
       m.Headers AS headers, CONVERT(varbinary(max), NULL) AS body, {destination} AS destination,
       {retry_count} AS attempts, COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{due} IS NULL;

-- name: find
-- Returns the messages with these keys, as `look` does; with their bodies if @with_body is 1. Reads the
-- whole table where keys are not indexed. Reads what others have not committed yet; keeps no locks.
SELECT {key_text} AS message_key, {{tick_text: m.{due}}} AS due,
       m.Headers AS headers, CASE WHEN @with_body = 1 THEN m.{body} END AS body,
       {destination} AS destination, {retry_count} AS attempts,
       COALESCE(DATALENGTH(m.{body}), 0) AS body_bytes
FROM {delayed} m WITH (NOLOCK)
WHERE m.{key} IN {{typed_keys}};

-- name: read_failures
-- Returns the retry counters of these messages: how often each has failed, when it is eligible again,
-- and its last error. Reads what others have not committed yet; keeps no locks.
SELECT a.message_key, a.attempts,
       {{tick_text: a.next_attempt_at}} AS next_attempt_at,
       a.error_text
FROM {{listed: @keys}} k
JOIN {attempts} a WITH (NOLOCK)
  ON a.source = @source AND a.message_key = k.[value] COLLATE DATABASE_DEFAULT;

-- name: count_buckets
-- Returns how many messages each of these spans of Due holds, and in a last row, whose bucket is NULL,
-- how many have no Due. An item of @spans is the number of its bucket, and its first and its last Due.
-- Reads what others have not committed yet; keeps no locks.
SELECT s.bucket, here.messages
FROM (
    SELECT TOP (2147483647) j.bucket,
           {{tick: j.first}} AS first,
           {{tick: j.last}} AS last
    FROM OPENJSON(CONVERT(nvarchar(max), @spans))
        WITH (bucket int '$.bucket', first varchar(27) '$.first', last varchar(27) '$.last') j
) s
CROSS APPLY (
    SELECT COUNT_BIG(*) AS messages
    FROM {delayed} m WITH (NOLOCK)
    WHERE m.{due} >= s.first AND m.{due} <= s.last
) here
UNION ALL
SELECT NULL AS bucket, COUNT_BIG(*) AS messages FROM {delayed} m WITH (NOLOCK) WHERE m.{due} IS NULL;
