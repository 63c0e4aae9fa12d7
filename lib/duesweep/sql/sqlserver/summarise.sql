-- Returns the row of a sealed sweep: what the ledger's `sweeps` gets. A slice may claim what another
-- was planned with, where both have the same Due: what was found is what was planned or claimed in
-- all. No locks kept.
WITH counted AS (
    SELECT j.slice,
           SUM(CONVERT(bigint, COALESCE(j.dispatched, 0))) AS dispatched,
           SUM(CONVERT(bigint, COALESCE(j.failed, 0))) AS failed,
           SUM(CONVERT(bigint, CASE WHEN j.kind = 'exhausted' THEN 1 ELSE 0 END)) AS exhausted,
           SUM(COALESCE(j.body_bytes, 0)) AS bytes,
           MAX(CASE WHEN j.kind = 'slice' AND j.reason IS NULL THEN 1 ELSE 0 END) AS is_complete,
           MIN(j.reason) AS reason,
           MAX(CASE WHEN j.attempts_changed = 1 OR j.kind = 'exhausted' THEN 1 ELSE 0 END) AS attempts_changed
    FROM {journal} j
    WHERE j.sweep_id = @sweep_id
    GROUP BY j.slice
), slices AS (
    SELECT CONVERT(bigint, p.[value]) AS planned,
           COALESCE(c.dispatched, 0) AS dispatched, COALESCE(c.failed, 0) AS failed,
           COALESCE(c.exhausted, 0) AS exhausted, COALESCE(c.bytes, 0) AS bytes,
           COALESCE(c.dispatched + c.failed + c.exhausted, 0) AS claimed,
           COALESCE(c.is_complete, 0) AS is_complete, c.reason,
           COALESCE(c.attempts_changed, 0) AS attempts_changed
    FROM {sweeps} s
    CROSS APPLY OPENJSON(s.planned) p
    LEFT JOIN counted c ON c.slice = CONVERT(int, p.[key])
    WHERE s.sweep_id = @sweep_id
), totals AS (
    SELECT COALESCE(SUM(planned), 0) AS planned, COALESCE(SUM(claimed), 0) AS claimed,
           COALESCE(SUM(dispatched), 0) AS dispatched, COALESCE(SUM(failed), 0) AS failed,
           COALESCE(SUM(exhausted), 0) AS exhausted, COALESCE(SUM(bytes), 0) AS bytes,
           COALESCE(SUM(CASE WHEN is_complete = 0 AND planned > claimed THEN planned - claimed END), 0) AS cut,
           COALESCE(MIN(is_complete), 1) AS is_complete, MIN(reason) AS reason,
           COALESCE(MAX(attempts_changed), 0) AS attempts_changed
    FROM slices
), extents AS (
    SELECT t.*, CASE WHEN t.planned > t.claimed THEN t.planned - t.claimed ELSE 0 END AS unclaimed
    FROM totals t
)
SELECT LOWER(CONVERT(varchar(36), s.sweep_id)) AS sweep_id, s.source, s.started_at, s.closed_at,
       CONVERT(datetime2(3), s.horizon) AS horizon,
       e.claimed + e.unclaimed AS found, e.claimed, e.dispatched, e.failed, e.exhausted,
       e.unclaimed - CASE WHEN e.cut < e.unclaimed THEN e.cut ELSE e.unclaimed END AS skipped,
       CASE WHEN e.cut < e.unclaimed THEN e.cut ELSE e.unclaimed END AS cut,
       e.bytes, s.held_back, s.abandoned, s.remaining, e.is_complete, e.reason,
       CASE WHEN s.attempts_changed = 1 OR e.attempts_changed = 1 THEN 1 ELSE 0 END AS attempts_changed
FROM {sweeps} s CROSS JOIN extents e
WHERE s.sweep_id = @sweep_id;
