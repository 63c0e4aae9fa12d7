-- Returns the messages among the keys that are (still) there and due, locked; skips what others hold.
-- With a zone, also the instant that Due means: what its clock shows at Due is UTC's reading then.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM d.{due}) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.{due}) AND %(zone)s::text IS NOT NULL THEN
           (extract(epoch FROM (d.{due} AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC') * 1000000)::bigint
       END AS instant_us
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]) AND d.{due} < %(horizon)s::timestamptz{utc}
FOR UPDATE OF d SKIP LOCKED;
