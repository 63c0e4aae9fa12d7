-- Returns how many messages a sealed group exhausted, and the longest one's size. No locks.
SELECT count(*) AS rows,
       coalesce(max(octet_length(j.headers)::bigint + coalesce(octet_length(j.body), 0)), 0) AS longest
FROM {journal} j JOIN {sweeps} s USING (sweep_id)
WHERE s.settle_id = %(settle_id)s AND j.kind = 'exhausted';
