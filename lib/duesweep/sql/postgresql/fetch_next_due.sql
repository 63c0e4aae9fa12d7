-- Returns the message that has been due for the longest and is eligible, locked; skips what others hold.
-- `instant_us` is the instant at which it is due, as for a claim.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM d.{due}) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM least(
           (d.{due}{utc} AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC', %(latest)s::timestamptz
       )) * 1000000)::bigint END AS instant_us
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc}
  AND NOT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d.{due}
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;
