-- Returns the keys that are eligible, oldest first, a thousand to a row: `claim_keys` and, in
-- bytes, `sizes`, each separated by commas; `total` is how many the slice has in all its rows. A slice
-- without keys has a row, too. For JDBC, as a subquery whose `slice` is a partition's predicate;
-- {horizon} and {source} are literals, and so is what takes the place of the comment. No locks.
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total
FROM (VALUES /* bounds */) AS s (slice, first_due, first_id, end_due, end_id)
LEFT JOIN LATERAL (
    SELECT string_agg(k.id::text, ',' ORDER BY k.position) AS claim_keys,
           string_agg(k.bytes::text, ',' ORDER BY k.position) AS sizes,
           (sum(count(*)) OVER ())::bigint AS total
    FROM (
        SELECT d.{id} AS id,
               coalesce(octet_length(d.{headers}), 0)::bigint + coalesce(octet_length(d.{body}), 0) AS bytes,
               row_number() OVER (ORDER BY d.{due}, d.{id}) - 1 AS position
        FROM {delayed} d
        WHERE d.{due} < {horizon}::timestamptz{utc}
          AND (d.{due}, d.{id}) >= (s.first_due, s.first_id) AND (d.{due}, d.{id}) < (s.end_due, s.end_id)
          AND NOT EXISTS (
            SELECT FROM {attempts} a
            WHERE a.source = {source} AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
          )
    ) k
    GROUP BY k.position / 1000
) chunk ON true
