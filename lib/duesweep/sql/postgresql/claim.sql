-- Returns the messages among the keys that are (still) there and due, locked; skips what others hold.
-- `instant_us` is the instant at which a message is due: what the clock of the writers' zone shows at
-- Due is what UTC's clock shows then. It is not later than `latest`, where that is given.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM d.{due}) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM least(
           (d.{due}{utc} AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC', %(latest)s::timestamptz
       )) * 1000000)::bigint END AS instant_us
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]) AND d.{due} < %(horizon)s::timestamptz{utc}
FOR UPDATE OF d SKIP LOCKED;
