-- Returns how many messages a sealed sweep exhausted, and the longest one's size. No locks.
SELECT count(*) AS rows,
       coalesce(max(coalesce(octet_length(j.headers), 0)::bigint + coalesce(octet_length(j.body), 0)), 0) AS longest
FROM {journal} j
WHERE j.sweep_id = %(sweep_id)s AND j.kind = 'exhausted';
