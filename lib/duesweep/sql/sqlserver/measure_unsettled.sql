-- Returns how many messages of a source the journal holds, their bytes there, and of how many sweeps.
-- Reads no blob. No locks kept.
SELECT COALESCE(SUM(CONVERT(bigint, COALESCE(j.dispatched, 0)) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)
           AS messages,
       COALESCE(SUM(CONVERT(bigint, COALESCE(DATALENGTH(j.outcomes), 0)) + COALESCE(DATALENGTH(j.body), 0)
           + COALESCE(DATALENGTH(j.headers_text), 0)), 0) AS bytes,
       COUNT(DISTINCT s.sweep_id) AS sweeps
FROM {sweeps} s
LEFT JOIN {journal} j ON j.sweep_id = s.sweep_id
WHERE s.source = @source;
