-- Sweeps: questions about past sweeps and their messages, in SQL that DataFusion and Spark both run. `{micros_begin}`
-- and `{micros_end}` enclose an instant that becomes microseconds since 1970-01-01 UTC.

-- name: last_sweeps
-- Returns sweeps, the last one first, and how long each took.
SELECT s.start, CAST({micros_begin}s.`end`{micros_end} - {micros_begin}s.start{micros_end} AS DOUBLE) / 1000000 AS seconds,
       s.outcome, coalesce(s.found, 0) AS found, coalesce(s.dispatched, 0) AS dispatched,
       coalesce(s.failed, 0) AS failed, coalesce(s.exhausted, 0) AS exhausted, coalesce(s.`left`, 0) AS `left`,
       s.lateness_p95_ms, s.reason
FROM {sweeps} s
ORDER BY s.start DESC
LIMIT {most}

-- name: sum_sweeps
-- Returns one row: how many sweeps there are, the sums of their numbers, and when the first began. The sweeps since
-- `recent_from` dispatched not more than `most` messages, unless the last one did.
SELECT count(*) AS sweeps, sum(dispatched) AS dispatched, sum(failed) AS failed, sum(exhausted) AS exhausted,
       min(start) AS first_start,
       min(CASE WHEN so_far <= {most} OR so_far = dispatched THEN start END) AS recent_from
FROM (
    SELECT s.start, coalesce(s.dispatched, 0) AS dispatched, s.failed, s.exhausted,
           sum(coalesce(s.dispatched, 0)) OVER (ORDER BY s.start DESC ROWS UNBOUNDED PRECEDING) AS so_far
    FROM {sweeps} s
) AS summed

-- name: sum_by_step
-- Returns one row for the sweeps that began in the same step of time: when that began, in microseconds, how many
-- messages they dispatched, and the most that one of them found.
SELECT step, sum(dispatched) AS dispatched, max(found) AS found
FROM (
    SELECT {micros_begin}s.start{micros_end} - ({micros_begin}s.start{micros_end} - {first}) % {length} AS step,
           s.dispatched, s.found
    FROM {sweeps} s
) AS steps
GROUP BY step

-- name: count_lost_errors
-- Returns one row: how many of the messages that sweeps exhausted have no row in `errors`.
SELECT sum(CASE WHEN s.exhausted > coalesce(e.kept, 0) THEN s.exhausted - coalesce(e.kept, 0) ELSE 0 END) AS lost
FROM {sweeps} s
LEFT JOIN (
    SELECT each.sweep_id, count(*) AS kept FROM {errors} AS each GROUP BY each.sweep_id
) AS e ON e.sweep_id = s.sweep_id

-- name: count_lateness
-- Returns how many of `most` messages were late up to the end of each step, which is NULL for the last step; and how many
-- of these were dispatched at their first attempt, and later than `late`. A lateness that is NULL is in step 0.
SELECT step, count(*) AS messages, sum(CASE WHEN attempts = 1 AND lateness_ms > {late} THEN 1 ELSE 0 END) AS late
FROM (
    SELECT t.attempts, t.lateness_ms,
           CASE WHEN t.lateness_ms IS NULL THEN 0 WHEN t.lateness_ms <= 1000 THEN 1
                WHEN t.lateness_ms <= 10000 THEN 2 WHEN t.lateness_ms <= 60000 THEN 3
                WHEN t.lateness_ms <= 600000 THEN 4 WHEN t.lateness_ms <= 3600000 THEN 5
                WHEN t.lateness_ms <= 86400000 THEN 6 ELSE 7 END AS step
    FROM {tombstones} t
    LIMIT {most}
) AS stepped
GROUP BY step

-- name: count_by_destination
-- Returns how many messages of a sweep had each outcome, and how many failed, by destination.
SELECT t.destination, t.outcome, count(*) AS messages FROM {tombstones} t GROUP BY t.destination, t.outcome
UNION ALL
SELECT r.destination, 'failed' AS outcome, count(*) AS messages FROM {retries} r GROUP BY r.destination

-- name: last_rates
-- Returns the rates, in messages a second, of the last sweeps that dispatched `least` messages or more.
SELECT s.rows_per_second FROM {sweeps} s
WHERE s.rows_per_second > 0 AND s.dispatched >= {least}
ORDER BY s.start DESC
LIMIT {most}

-- name: last_gap
-- Returns one row: the last instant up to `wanted` that no sweep spans, `margin` around it included. All are in
-- microseconds since 1970-01-01 UTC. `before` is the answer if no sweep that ended later had a gap before it.
SELECT coalesce(max(CASE WHEN ended + {margin} < before THEN before END),
                min(least(before, started - {margin})), {wanted}) AS gap
FROM (
    SELECT started, ended,
           coalesce(least({wanted}, min(started) OVER (
               ORDER BY ended DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) - {margin}), {wanted}) AS before
    FROM (
        SELECT {micros_begin}s.start{micros_end} AS started, {micros_begin}s.`end`{micros_end} AS ended FROM {sweeps} s
    ) AS spans
) AS spans
