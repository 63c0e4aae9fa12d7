-- Returns how many messages of a source the journal holds, their bytes there, and of how many sweeps.
-- Reads no blob. No locks.
SELECT coalesce(sum(coalesce(j.dispatched, 0) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)::bigint
           AS messages,
       coalesce(sum(coalesce(octet_length(j.outcomes), 0)::bigint + coalesce(octet_length(j.body), 0)
           + coalesce(octet_length(j.headers), 0)), 0)::bigint AS bytes,
       count(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN {journal} j ON j.sweep_id = s.sweep_id
WHERE s.source = %(source)s;
