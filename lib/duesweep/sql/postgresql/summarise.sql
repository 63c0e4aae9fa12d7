-- Returns the row of a sealed sweep: what the ledger's `sweeps` gets. No locks.
WITH sealed AS (
    SELECT * FROM {sweeps} WHERE sweep_id = %(sweep_id)s
), rows_of AS (
    SELECT j.* FROM {journal} j JOIN sealed USING (sweep_id)
), counted AS (
    SELECT sweep_id, slice,
           coalesce(sum(dispatched), 0)::bigint AS dispatched,
           coalesce(sum(failed), 0)::bigint AS failed,
           count(*) FILTER (WHERE kind = 'exhausted') AS exhausted,
           coalesce(sum(body_bytes), 0)::bigint AS bytes,
           coalesce(max(planned), 0)::bigint AS planned,
           coalesce(bool_or(kind = 'slice' AND reason IS NULL), false) AS is_complete,
           min(reason) AS reason,
           coalesce(bool_or(attempts_changed OR kind = 'exhausted'), false) AS attempts_changed
    FROM rows_of
    GROUP BY sweep_id, slice
), slices AS (
    SELECT s.sweep_id,
           greatest(p.planned, coalesce(c.planned, 0)) AS planned,
           coalesce(c.dispatched, 0) AS dispatched, coalesce(c.failed, 0) AS failed,
           coalesce(c.exhausted, 0) AS exhausted, coalesce(c.bytes, 0) AS bytes,
           coalesce(c.dispatched + c.failed + c.exhausted, 0) AS claimed,
           coalesce(c.is_complete, false) AS is_complete, c.reason,
           coalesce(c.attempts_changed, false) AS attempts_changed
    FROM sealed s
    CROSS JOIN LATERAL unnest(s.planned) WITH ORDINALITY AS p (planned, position)
    LEFT JOIN counted c ON c.sweep_id = s.sweep_id AND c.slice = p.position - 1
), totals AS (
    SELECT sweep_id,
           sum(greatest(planned, claimed)) AS found, sum(claimed) AS claimed,
           sum(dispatched) AS dispatched, sum(failed) AS failed, sum(exhausted) AS exhausted,
           sum(CASE WHEN is_complete THEN greatest(planned - claimed, 0) ELSE 0 END) AS skipped,
           sum(CASE WHEN is_complete THEN 0 ELSE greatest(planned - claimed, 0) END) AS cut,
           sum(bytes) AS bytes, bool_and(is_complete) AS is_complete, min(reason) AS reason,
           bool_or(attempts_changed) AS attempts_changed
    FROM slices
    GROUP BY sweep_id
)
SELECT s.sweep_id, s.source, s.started_at, s.closed_at, s.horizon,
       coalesce(t.found, 0)::bigint AS found, coalesce(t.claimed, 0)::bigint AS claimed,
       coalesce(t.dispatched, 0)::bigint AS dispatched, coalesce(t.failed, 0)::bigint AS failed,
       coalesce(t.exhausted, 0)::bigint AS exhausted, coalesce(t.skipped, 0)::bigint AS skipped,
       coalesce(t.cut, 0)::bigint AS cut, coalesce(t.bytes, 0)::bigint AS bytes,
       s.held_back, s.abandoned, s.remaining, coalesce(t.is_complete, true) AS is_complete, t.reason,
       s.attempts_changed OR coalesce(t.attempts_changed, false) AS attempts_changed
FROM sealed s
LEFT JOIN totals t USING (sweep_id)
ORDER BY s.started_at;
