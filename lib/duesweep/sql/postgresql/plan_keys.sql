-- Returns the keys that are due and ripe, with what a slice's bounds are compared to. For JDBC, as
-- a subquery: {horizon} and {source} are literals. No locks.
SELECT d.id::text AS message_key,
       octet_length(d.headers)::bigint + coalesce(octet_length(d.body), 0) AS bytes,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM d.due) * 1000000)::bigint END AS due_us,
       d.due AS due, d.id AS id
FROM {delayed} d
WHERE d.due < {horizon}
  AND NOT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = {source} AND a.message_key = d.id AND a.next_attempt_at > clock_timestamp()
  )
