-- Returns how many messages of a source the journal holds, and their bytes there. Reads no blob. No locks
-- kept.
SELECT COALESCE(SUM(CONVERT(bigint, COALESCE(j.dispatched, 0)) + CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END), 0)
           AS messages,
       COALESCE(SUM(CONVERT(bigint, COALESCE(DATALENGTH(j.outcomes), 0)) + COALESCE(DATALENGTH(j.body), 0)
           + COALESCE(DATALENGTH(j.headers_text), 0)), 0) AS bytes
FROM {journal} j
JOIN {sweeps} s ON s.sweep_id = j.sweep_id
WHERE s.source = @source;
