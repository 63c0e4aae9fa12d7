-- Returns where the messages go that are eligible, of the 10,000 that have been due for the
-- longest, and how many go there; at most 100, the commonest first. No locks.
SELECT destination, count(*) AS messages
FROM (
    SELECT {destination} AS destination
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
      AND {destination} <> ''
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
    ORDER BY d.{due}
    LIMIT 10000
) oldest
GROUP BY destination
ORDER BY messages DESC, destination
LIMIT 100;
