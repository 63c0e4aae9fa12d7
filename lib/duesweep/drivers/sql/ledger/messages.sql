-- Messages: questions about single messages, in SQL that DataFusion and Spark both run. `{micros_begin}` and
-- `{micros_end}` enclose an instant that becomes microseconds since 1970-01-01 UTC.

-- name: find_events
-- Returns the events of messages, in no order: when they got which outcome, with the facts that the table has. `place`
-- is the table's number.
SELECT {micros_begin}t.dispatched_at{micros_end} AS at, 1 AS place, t.outcome AS what, t.message_key, t.message_id,
       t.sweep_id, t.queue, CAST(t.attempts AS BIGINT) AS attempts, t.lateness_ms, NULL AS error_text,
       NULL AS given_by, NULL AS reason, NULL AS due_before, NULL AS due_after
FROM {tombstones} t
UNION ALL
SELECT {micros_begin}r.last_failed_at{micros_end}, 2, 'failed', r.message_key, r.message_id,
       NULL, NULL, CAST(r.attempts AS BIGINT), NULL, r.error_text,
       NULL, NULL, NULL, NULL
FROM {retries} r
UNION ALL
SELECT {micros_begin}e.last_failed_at{micros_end}, 3, 'exhausted', e.message_key, e.message_id,
       e.sweep_id, NULL, CAST(e.attempts AS BIGINT), NULL, e.error_text,
       NULL, NULL, NULL, NULL
FROM {errors} e
UNION ALL
SELECT {micros_begin}c.changed_at{micros_end}, 4, c.change, c.message_key, c.message_id,
       c.sweep_id, c.queue, NULL, NULL, NULL,
       c.given_by, c.reason, {micros_begin}c.due_before{micros_end}, {micros_begin}c.due_after{micros_end}
FROM {changes} c
