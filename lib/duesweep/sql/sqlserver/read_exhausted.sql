-- Returns the exhausted messages of a sealed sweep, for JDBC, as a subquery; {sweep_id} is a literal.
-- Times are microseconds since 1970-01-01 UTC: no session's time zone has a say. No locks kept.
SELECT j.id, LOWER(CONVERT(varchar(36), j.sweep_id)) AS sweep_id, j.message_key, j.message_id,
       j.message_type, j.destination, j.queue, j.due_us AS due, j.dispatched_us AS dispatched_at,
       (j.dispatched_us - j.due_us) / 1000 AS lateness_ms, j.attempts,
       CONVERT(bigint, COALESCE(DATALENGTH(j.body), 0)) AS body_bytes,
       j.first_failed_us AS first_failed_at, j.error_class, j.error_text, j.stack,
       j.headers, j.headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = CONVERT(uniqueidentifier, {sweep_id}) AND j.kind = 'exhausted'
