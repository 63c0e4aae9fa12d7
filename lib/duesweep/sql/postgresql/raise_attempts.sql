-- Counts a failure for each of these messages; the messages' locks are held.
INSERT INTO {attempts} AS counted (
    source, message_key, message_id, destination, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
)
SELECT %(source)s, f.message_key, f.message_id, f.destination, 1,
       statement_timestamp(), statement_timestamp(),
       statement_timestamp() + make_interval(secs => f.retry_seconds), f.error_class, f.error_text
FROM unnest(
    %(keys)s::uuid[], %(message_ids)s::text[], %(destinations)s::text[],
    %(retry_seconds)s::float8[], %(error_classes)s::text[], %(error_texts)s::text[]
) AS f (message_key, message_id, destination, retry_seconds, error_class, error_text)
ON CONFLICT (source, message_key) DO UPDATE SET
    attempts = counted.attempts + 1,
    destination = excluded.destination,
    last_failed_at = excluded.last_failed_at,
    next_attempt_at = excluded.next_attempt_at,
    error_class = excluded.error_class,
    error_text = excluded.error_text;
