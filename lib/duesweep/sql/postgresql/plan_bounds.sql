-- Returns the first (due, id) of each of at most %(slices)s slices of equal size, and how many
-- messages are eligible in all. Ordered by the pair, so that one Due can span slices. No locks.
SELECT due::text AS due, id::text AS id, total
FROM (
    SELECT d.{due} AS due, d.{id} AS id,
           row_number() OVER (ORDER BY d.{due}, d.{id}) - 1 AS position,
           count(*) OVER () AS total
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
) pending
WHERE position %% ((total + %(slices)s - 1) / %(slices)s) = 0
ORDER BY position;
