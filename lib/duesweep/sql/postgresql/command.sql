-- Command: what an operator's command does to messages, in its order; then how it is settled. A command
-- has its row in the table of sweeps, whose statements open, fence, close and seal both.

-- name: open_command
-- Opens an operator's command. Its row is the fence, as a sweep's is. Locks the new row only.
INSERT INTO {sweeps} (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (
    %(sweep_id)s, %(source)s, %(horizon)s, %(command)s, %(given_by)s, %(given_reason)s
);

-- name: read_commands
-- Returns the commands of a source that are not settled. Takes no locks.
SELECT sweep_id, command FROM {sweeps} WHERE source = %(source)s AND command IS NOT NULL;

-- name: read_command
-- Returns what a command is, and whether it changed retry counters. No row: it is a sweep. Takes no
-- locks.
SELECT s.command, s.given_by, s.given_reason, EXISTS (
    SELECT FROM {changes} c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) AS attempts_changed
FROM {sweeps} s
WHERE s.sweep_id = %(sweep_id)s AND s.command IS NOT NULL;

-- name: hold
-- Returns the messages of these keys that are still there, due or not, as `claim` does; a Due beyond the
-- year 290,000, whose microseconds no bigint holds, as in that year. Locks them until this transaction
-- ends; skips rows that others hold.
SELECT d.{id}::text AS id, d.{headers} AS headers, d.{body} AS body, {destination} AS destination,
       CASE WHEN isfinite(d.{due}) THEN {{micros: c.due}} END AS due_us,
       CASE WHEN isfinite(d.{due}) THEN (extract(epoch FROM {{instant: c.due; {{as_utc: c.due}} }}) * 1000000)::bigint END AS instant_us
FROM {delayed} d
CROSS JOIN LATERAL (SELECT least(d.{due}{utc}, timestamptz '290000-01-01 00:00:00+00') AS due) c
WHERE d.{id} = ANY(%(keys)s::uuid[])
FOR UPDATE OF d SKIP LOCKED;

-- name: count_present
-- Returns how many of these messages are there, whoever holds them. Runs after `hold`, as a statement of
-- its own. Takes no locks.
SELECT count(*) AS present FROM {delayed} d WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: journal_cancelled
-- Journals messages that are cancelled. Their headers and bodies are copied from their rows, whose locks
-- this transaction holds.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, body
)
SELECT %(sweep_id)s, 'cancelled', %(changed_us)s, d.{id}::text, c.message_id, c.message_type, c.destination,
       c.due_before_us, c.attempts, coalesce(octet_length(d.{body}), 0), d.{headers}, d.{body}
FROM unnest(
    %(keys)s::uuid[], %(message_ids)s::text[], %(message_types)s::text[], %(destinations)s::text[],
    %(dues_before_us)s::bigint[], %(attempts)s::integer[]
) AS c (message_key, message_id, message_type, destination, due_before_us, attempts)
JOIN {delayed} d ON d.{id} = c.message_key;

-- name: reschedule
-- Gives messages a new Due: UTC's clock time at an instant, as the writers' clock would show it, which is
-- how the transport stores an instant. Returns the instant at which each is due now, as a claim does: in
-- the hour of a clock change it can differ. This transaction holds the messages' locks.
UPDATE {delayed} d
SET {due} = ((n.due AT TIME ZONE 'UTC') AT TIME ZONE %(zone)s::text){utc}
FROM unnest(%(keys)s::uuid[], %(dues)s::timestamptz[]) AS n (message_key, due)
WHERE d.{id} = n.message_key
RETURNING d.{id}::text AS id,
          {{micros: {{as_utc: d.{due}{utc}}} }}
              AS instant_us;

-- name: read_instants
-- Returns the instant at which each of these messages is due. Takes no locks.
SELECT d.{id}::text AS id,
       {{micros: {{as_utc: d.{due}{utc}}} }}
           AS instant_us
FROM {delayed} d
WHERE d.{id} = ANY(%(keys)s::uuid[]);

-- name: postpone_attempts
-- Lets messages in back-off be tried again at their new Dues. This transaction holds the messages' locks.
UPDATE {attempts} a
SET next_attempt_at = n.due
FROM unnest(%(keys)s::uuid[], %(dues)s::timestamptz[]) AS n (message_key, due)
WHERE a.source = %(source)s AND a.message_key = n.message_key;

-- name: journal_changes
-- Journals changes without headers and bodies. Locks the new rows only.
INSERT INTO {changes} (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, queue, "of", new_key, attempts, body_bytes
)
SELECT %(sweep_id)s, c.change, %(changed_us)s, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us, c.due_after_us, c.queue, c.undone, c.new_key, c.attempts, c.body_bytes
FROM unnest(
    %(changes)s::text[], %(keys)s::text[], %(message_ids)s::text[], %(message_types)s::text[],
    %(destinations)s::text[], %(dues_before_us)s::bigint[], %(dues_after_us)s::bigint[], %(queues)s::text[],
    %(undone)s::text[], %(new_keys)s::text[], %(attempts)s::integer[], %(body_bytes)s::bigint[]
) AS c (
    change, message_key, message_id, message_type, destination, due_before_us, due_after_us, queue, undone,
    new_key, attempts, body_bytes
);

-- name: changes_pieces
-- Returns what a sealed command changed, in pieces of about so many bytes: the first and the last id of
-- each, its changes, and the size of its longest one. Nobody changes a sealed command, so the pieces are
-- the same each time. Takes no locks.
{{pieces
    SELECT c.id,
           1000 + 2 * coalesce(octet_length(c.headers), 0)::bigint + coalesce(octet_length(c.body), 0) AS bytes
    FROM {changes} c
    WHERE c.sweep_id = %(sweep_id)s
}}

-- name: read_changes
-- Returns a piece of what a sealed command changed. Times are microseconds since 1970-01-01 UTC. Spark
-- runs this over JDBC as a subquery and can bind no values, so the ids are literals. Takes no locks.
SELECT c.id, c.sweep_id::text AS sweep_id, s.command, c.change, c.changed_us AS changed_at, s.given_by,
       s.given_reason AS reason, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue, c."of", c.new_key, c.attempts,
       c.headers, c.headers AS headers_text, c.body, c.body_bytes
FROM {changes} c
JOIN {sweeps} s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = {sweep_id}::uuid AND c.id BETWEEN {first_id}::bigint AND {last_id}::bigint

-- name: delete_changes
-- Deletes changes of a settled command, at most 500 at a time. Locks these rows.
DELETE FROM {changes}
WHERE id IN (SELECT id FROM {changes} WHERE sweep_id = %(sweep_id)s LIMIT 500);
