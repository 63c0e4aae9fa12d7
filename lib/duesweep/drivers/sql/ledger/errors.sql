-- Errors: questions about exhausted messages, in SQL that DataFusion and Spark both run. `{errors}` and `{changes}` are
-- the rows of these tables that the question is about. `{last_begin}`, `{last_by}` and `{last_end}` enclose a column and
-- an order of which an aggregate is the last value: the two have no common function for that.

-- fragment: seen
-- Each error, and its last fate; NULL: it is open.
SELECT e.sweep_id, e.message_key, e.message_id, e.destination, e.attempts, e.first_failed_at, e.last_failed_at,
       e.error_class, e.error_text, e.headers['NServiceBus.EnclosedMessageTypes'] AS enclosed_types, 1 AS messages,
       e.last_failed_at AS failed_from, fates.change, fates.changed_at, fates.given_by, fates.reason, fates.queue,
       fates.new_key
FROM {errors} e
LEFT JOIN (
    SELECT c.of, c.message_key, c.change, c.changed_at, c.given_by, c.reason, c.queue, c.new_key,
           row_number() OVER (PARTITION BY c.of, c.message_key ORDER BY c.changed_at DESC) AS number
    FROM {changes} c
) AS fates ON fates.of = e.sweep_id AND fates.message_key = e.message_key AND fates.number = 1
WHERE coalesce(fates.change, 'open') <> {hidden}

-- fragment: last
{last_begin}$1{last_by}last_failed_at, sweep_id, message_key{last_end} AS $1

-- name: count_errors
-- Returns one row for the errors with the same class, destination, types and fate, except the hidden fate: how many
-- they are, from when to when they failed, and which one failed last.
SELECT {{last: sweep_id}}, {{last: message_key}}, {{last: message_id}}, destination, {{last: attempts}},
       {{last: first_failed_at}}, max(last_failed_at) AS last_failed_at, error_class, {{last: error_text}},
       enclosed_types, change, count(*) AS messages, min(last_failed_at) AS failed_from
FROM (
    {{seen}}
) AS seen
GROUP BY error_class, destination, enclosed_types, change

-- name: last_errors
-- Returns errors, the last failure first; the fates of the hidden kind are left out.
{{seen}}
ORDER BY e.last_failed_at DESC, e.sweep_id DESC, e.message_key DESC
LIMIT {most}

-- name: find_errors
-- Returns errors in no order; the fates of the hidden kind are left out.
{{seen}}

-- name: find_destinations
-- Returns the destinations of errors, each once.
SELECT DISTINCT e.destination FROM {errors} e WHERE e.destination IS NOT NULL

-- name: count_failing
-- Returns one row for the messages in back-off with the same class of error and destination, most messages first: when
-- the last one failed, and its error as an example.
SELECT coalesce(error_class, '') AS error_class, destination, count(*) AS messages, max(last_failed_at) AS `last`,
       coalesce({last_begin}error_text{last_by}last_failed_at, message_key{last_end}, '') AS example
FROM {retries} AS r
GROUP BY r.error_class, r.destination
ORDER BY messages DESC

-- name: find_cancelled
-- Returns the cancelled messages, by all commands or one, that no command has restored; or all.
SELECT c.sweep_id, c.message_key, c.destination
FROM {changes} c
LEFT JOIN (
    SELECT DISTINCT r.of, r.message_key FROM {changes} r WHERE r.change = 'restored'
) AS restored ON restored.of = c.sweep_id AND restored.message_key = c.message_key
WHERE c.change = 'cancelled' AND (restored.message_key IS NULL OR {again} = 1) AND {command} IN ('', c.sweep_id)

-- name: find_copies
-- Returns the exhausted messages of which an error queue got a copy.
SELECT t.sweep_id, t.message_key, t.queue FROM {tombstones} t WHERE t.outcome = 'exhausted' AND t.queue IS NOT NULL
