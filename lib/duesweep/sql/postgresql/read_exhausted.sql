-- Returns the exhausted messages of a sealed sweep, for JDBC, as a subquery; {sweep_id} is a
-- literal. Times are microseconds since 1970-01-01 UTC: no session's time zone has a say. No locks.
SELECT j.id, j.sweep_id::text AS sweep_id, j.message_key::text AS message_key, j.message_id,
       j.message_type, j.destination, j.queue,
       (extract(epoch FROM j.due) * 1000000)::bigint AS due,
       (extract(epoch FROM j.dispatched_at) * 1000000)::bigint AS dispatched_at,
       ((extract(epoch FROM j.dispatched_at) - extract(epoch FROM j.due)) * 1000)::bigint AS lateness_ms,
       j.attempts, coalesce(octet_length(j.body), 0)::bigint AS body_bytes,
       (extract(epoch FROM j.first_failed_at) * 1000000)::bigint AS first_failed_at,
       j.error_class, j.error_text, j.stack, j.headers, j.headers AS headers_text, j.body
FROM {journal} j
WHERE j.sweep_id = {sweep_id}::uuid AND j.kind = 'exhausted'
