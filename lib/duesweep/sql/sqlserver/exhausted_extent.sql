-- Returns how many messages a sealed sweep exhausted, and the longest one's size. No locks kept.
SELECT COUNT_BIG(*) AS rows,
       COALESCE(MAX(
           COALESCE(DATALENGTH(j.headers_text), 0) + COALESCE(DATALENGTH(j.headers), 0)
           + COALESCE(DATALENGTH(j.body), 0)
       ), 0) AS longest
FROM {journal} j
WHERE j.sweep_id = @sweep_id AND j.kind = 'exhausted';
