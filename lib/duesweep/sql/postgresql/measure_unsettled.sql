-- Returns how many messages of a source the journal holds, and their bytes there. Reads no blob. No locks.
SELECT coalesce(sum(coalesce(j.dispatched, 0) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)::bigint
           AS messages,
       coalesce(sum(coalesce(octet_length(j.outcomes), 0)::bigint + coalesce(octet_length(j.body), 0)
           + coalesce(octet_length(j.headers), 0)), 0)::bigint AS bytes
FROM {journal} j
JOIN {sweeps} s ON s.sweep_id = j.sweep_id
WHERE s.source = %(source)s;
