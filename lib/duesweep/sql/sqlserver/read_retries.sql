-- Returns the retry counters of a source, for JDBC, as a subquery; {source} is a literal. No locks
-- kept.
SELECT a.message_key, a.message_id, a.destination, a.attempts,
       DATEDIFF_BIG(microsecond, '19700101', a.first_failed_at) AS first_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.last_failed_at) AS last_failed_at,
       DATEDIFF_BIG(microsecond, '19700101', a.next_attempt_at) AS next_attempt_at,
       a.error_class, a.error_text
FROM {attempts} a
WHERE a.source = {source}
