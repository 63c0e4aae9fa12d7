-- Audit: questions about the rows that the tables have of the same sweep, command or message, in SQL that DataFusion and
-- Spark both run. Of a question with `{part}`, a part of the rows is grouped at a time, so that they fit into memory.
-- Earlier versions of delta-rs, as on Databricks, do not know FILTER.

-- fragment: in_part
-- Rows with the same key are in the same part. Ids differ most in their last two characters.
(31 * ascii(right(coalesce($1, ''), 1)) + ascii(right(coalesce($1, ''), 2))) % {parts} = {part}

-- name: count_by_sweep
-- Returns one row for each sweep and command: the numbers of its row in `sweeps`, of which there should be one, and how
-- many rows the other tables have of it.
SELECT coalesce(s.sweep_id, t.sweep_id, e.sweep_id, c.sweep_id) AS sweep_id, coalesce(s.sweeps, 0) AS sweeps, s.start,
       s.found, s.claimed, s.skipped, s.gone, s.eligible_later, s.held, s.`left`, s.dispatched, s.failed, s.exhausted,
       coalesce(t.dispatched_rows, 0) AS dispatched_rows, coalesce(t.exhausted_rows, 0) AS exhausted_rows,
       coalesce(t.cancelled_rows, 0) AS cancelled_rows, coalesce(t.other_rows, 0) AS other_rows,
       coalesce(e.error_rows, 0) AS error_rows, coalesce(c.change_rows, 0) AS change_rows
FROM (
    SELECT coalesce(each.sweep_id, '(none)') AS sweep_id, count(*) AS sweeps, max(each.start) AS start,
           max(each.found) AS found, max(each.claimed) AS claimed, max(each.skipped) AS skipped,
           max(each.gone) AS gone, max(each.eligible_later) AS eligible_later, max(each.held) AS held,
           max(each.`left`) AS `left`, max(each.dispatched) AS dispatched, max(each.failed) AS failed,
           max(each.exhausted) AS exhausted
    FROM {sweeps} AS each
    GROUP BY each.sweep_id
) AS s
FULL JOIN (
    SELECT coalesce(each.sweep_id, '(none)') AS sweep_id,
           sum(CASE WHEN each.outcome IN ('dispatched', 'deferred') THEN 1 ELSE 0 END) AS dispatched_rows,
           sum(CASE WHEN each.outcome = 'exhausted' THEN 1 ELSE 0 END) AS exhausted_rows,
           sum(CASE WHEN each.outcome = 'cancelled' THEN 1 ELSE 0 END) AS cancelled_rows,
           sum(CASE WHEN each.outcome IN ('dispatched', 'deferred', 'exhausted', 'cancelled') THEN 0 ELSE 1 END)
               AS other_rows
    FROM {tombstones} AS each
    GROUP BY each.sweep_id
) AS t ON t.sweep_id = s.sweep_id
FULL JOIN (
    SELECT coalesce(each.sweep_id, '(none)') AS sweep_id, count(*) AS error_rows
    FROM {errors} AS each
    GROUP BY each.sweep_id
) AS e ON e.sweep_id = coalesce(s.sweep_id, t.sweep_id)
FULL JOIN (
    SELECT coalesce(each.sweep_id, '(none)') AS sweep_id, count(*) AS change_rows
    FROM {changes} AS each
    GROUP BY each.sweep_id
) AS c ON c.sweep_id = coalesce(s.sweep_id, t.sweep_id, e.sweep_id)

-- name: find_alike
-- Returns the keys of messages that have two tombstones with the same message id and Due. A store may use a key again,
-- for another Due.
SELECT DISTINCT message_key
FROM (
    SELECT t.message_key
    FROM {tombstones} t
    WHERE {{in_part: t.message_key}}
    GROUP BY t.message_key, t.message_id, t.due
    HAVING count(*) > 1
) AS alike

-- fragment: stored_again
-- How often commands stored a message again under the key that it had before. Most stores give a new key, which has no
-- tombstone yet.
SELECT c.message_key, c.of AS sweep_id, count(*) AS times
FROM {changes} c
WHERE c.new_key = c.message_key
GROUP BY c.message_key, c.of

-- name: count_final_tombstones
-- Returns how many tombstones of the same message and Due there are, without one for each time that a command has
-- undone: first of the sweep or command that it undid, then of any, as a message may be restored again.
SELECT message_key, message_id, due, max(outcome) AS outcome, count(*) AS tombstones
FROM (
    SELECT numbered.*,
           row_number() OVER (
               PARTITION BY message_key
               ORDER BY CASE WHEN number <= coalesce(undone, 0) THEN 0 ELSE 1 END, dispatched_at
           ) AS place
    FROM (
        SELECT t.message_key, t.message_id, t.due, t.outcome, t.dispatched_at, undone.times AS undone,
               stored.times AS stored,
               row_number() OVER (PARTITION BY t.message_key, t.sweep_id ORDER BY t.dispatched_at) AS number
        FROM {tombstones} t
        LEFT JOIN (
            {{stored_again}}
        ) AS undone ON undone.message_key = t.message_key AND undone.sweep_id = t.sweep_id
        LEFT JOIN (
            SELECT message_key, sum(times) AS times
            FROM (
                {{stored_again}}
            ) AS times_by_sweep
            GROUP BY message_key
        ) AS stored ON stored.message_key = t.message_key
    ) AS numbered
) AS placed
WHERE place > coalesce(stored, 0)
GROUP BY message_key, message_id, due

-- name: find_doubled_errors
-- Returns the errors that a sweep has twice, and how often.
SELECT e.message_key, e.sweep_id, count(*) AS errors
FROM {errors} e
WHERE {{in_part: e.message_key}}
GROUP BY e.message_key, e.sweep_id
HAVING count(*) > 1
