-- Returns why keys led to no message: `skipped` are there and due, so that somebody else holds them;
-- `later` are there and not due any more. A statement of its own, after the claim. No locks.
SELECT count(*) FILTER (WHERE is_due) AS skipped, count(*) FILTER (WHERE NOT is_due) AS later
FROM (
    SELECT coalesce(d.{due} < %(horizon)s::timestamptz{utc}, false) AS is_due
    FROM {delayed} d
    WHERE d.{id} = ANY(%(keys)s::uuid[])
) AS unclaimed;
