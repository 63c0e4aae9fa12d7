-- Errors: questions about exhausted messages, in SQL that DataFusion and Spark both run. `{errors}` and `{changes}` are
-- the rows of these tables that the question is about. `{last_begin}` and `{last_end}` enclose the column of which an
-- aggregate is the value at the last failure: the two have no common function for that.

-- fragment: seen
-- Each error, and its last fate; NULL: it is open.
SELECT e.sweep_id, e.message_key, e.message_id, e.destination, e.attempts, e.first_failed_at, e.last_failed_at,
       e.error_class, e.error_text, e.headers['NServiceBus.EnclosedMessageTypes'] AS enclosed_types, fates.change,
       1 AS messages, e.last_failed_at AS failed_from
FROM {errors} e
LEFT JOIN (
    SELECT error_sweep_id, message_key, change
    FROM (
        SELECT c.of AS error_sweep_id, c.message_key, c.change,
               row_number() OVER (PARTITION BY c.of, c.message_key ORDER BY c.changed_at DESC) AS number
        FROM {changes} c
    ) AS numbered
    WHERE number = 1
) AS fates ON fates.error_sweep_id = e.sweep_id AND fates.message_key = e.message_key

-- fragment: last
{last_begin}$1{last_end} AS $1

-- name: count_errors
-- Returns one row for the errors with the same class, destination, types and fate: how many they are, from when to
-- when they failed, and which one failed last.
SELECT {{last: sweep_id}}, {{last: message_key}}, {{last: message_id}}, destination, {{last: attempts}},
       {{last: first_failed_at}}, max(last_failed_at) AS last_failed_at, error_class, {{last: error_text}},
       enclosed_types, change, count(*) AS messages, min(last_failed_at) AS failed_from
FROM (
    {{seen}}
) AS seen
GROUP BY error_class, destination, enclosed_types, change

-- name: last_errors
-- Returns each error, the last failure first.
{{seen}}
ORDER BY e.last_failed_at DESC, e.sweep_id DESC, e.message_key DESC
