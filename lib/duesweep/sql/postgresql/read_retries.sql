-- Returns the retry counters of a source, for JDBC, as a subquery; {source} is a literal. No locks.
SELECT message_key::text AS message_key, message_id, destination, attempts,
       (extract(epoch FROM first_failed_at) * 1000000)::bigint AS first_failed_at,
       (extract(epoch FROM last_failed_at) * 1000000)::bigint AS last_failed_at,
       (extract(epoch FROM next_attempt_at) * 1000000)::bigint AS next_attempt_at,
       error_class, error_text
FROM {attempts}
WHERE source = {source}
