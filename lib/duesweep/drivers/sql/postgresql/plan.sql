-- Plan: the horizon, due and eligible messages, and how they are cut into slices. In a sweep's order.
--
-- Fragments of other files: readable (batch.sql).

-- name: session_zone
-- Returns the session's time zone and where this setting comes from.
SELECT setting AS zone, source FROM pg_settings WHERE name = 'TimeZone';

-- name: writer_zones
-- Returns the roles that may write to the delayed table (its owner, and who may log in and insert), and the
-- time zone that settings of the role or of the database give each. NULL: the server's default.
SELECT r.rolname AS role, r.rolname = current_user AS is_sweeper, r.rolsuper AS is_superuser,
       c.relowner = r.oid AS is_owner,
       (
           SELECT substring(setting FROM position('=' IN setting) + 1)
           FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS setting
           WHERE s.setrole IN (r.oid, 0)
             AND s.setdatabase IN ((SELECT oid FROM pg_database WHERE datname = current_database()), 0)
             AND lower(split_part(setting, '=', 1)) = 'timezone'
           ORDER BY s.setrole = 0, s.setdatabase = 0
           LIMIT 1
       ) AS zone
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_roles r ON r.oid = c.relowner OR (r.rolcanlogin AND has_table_privilege(r.oid, c.oid, 'INSERT'))
WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text;

-- name: set_zone
-- Sets the session's time zone for this transaction only, and returns it. NULL: the zone with which the session
-- began.
SELECT set_config('TimeZone', %(zone)s, true) AS zone;

-- name: zones_agree
-- Returns whether the clocks of these time zones show the same in the coming years.
SELECT NOT EXISTS (
    SELECT FROM generate_series(now(), now() + interval '2 years', interval '1 hour') AS moment,
                unnest(%(zones)s::text[]) AS zone
    GROUP BY moment HAVING count(DISTINCT moment AT TIME ZONE zone) > 1
) AS agree;

-- name: horizon
-- Returns the horizon by NServiceBus's own predicate, Due < now() AT TIME ZONE 'UTC', and the server's time.
-- The predicate depends on the session's zone, so this must run in the writers'.
SELECT timezone('UTC', now())::timestamptz AS horizon, now() AS server_time;

-- fragment: since
-- An instant before all Dues if it is NULL.
coalesce(%(since)s::timestamptz, '-infinity'){utc}

-- fragment: from_since
d.{due} >= {{since}}

-- fragment: not_paused
($1::text = '[]' OR NOT coalesce({pausable}, '') LIKE ANY (ARRAY(
  SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($1::jsonb) p
)))

-- fragment: not_in_back_off
-- By `statement_timestamp()` the planner reads the counters once, by `clock_timestamp()` for each message.
NOT EXISTS (
  SELECT FROM {attempts} a
  WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > $1
)

-- fragment: eligible
{{not_paused: %(paused)s}}
AND {{not_in_back_off: $1}}

-- name: find_pending
-- Returns the Due, as an instant, of the eligible message that has been due longest, from `since` on; NULL: before the
-- year 1. No row: no such message.
SELECT CASE WHEN d.{due}{utc} >= timestamptz '0001-01-02 00:00:00+00' THEN d.{due}{utc} END AS due
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc} AND {{from_since}}
  AND {{eligible: clock_timestamp()}}
ORDER BY d.{due}
LIMIT 1;

-- name: count_pending
-- Returns how many messages are due and eligible. Stops at `most`.
SELECT count(*) AS pending
FROM (
    SELECT
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND {{from_since}}
      AND {{eligible: statement_timestamp()}}
    LIMIT %(most)s
) eligible;

-- name: count_timeless
-- Returns how many messages have no Time. They never become due.
SELECT count(*) AS timeless FROM {delayed} d WHERE d.{due} IS NULL;

-- fragment: first_due
-- The earliest Due from `since` on, as an instant (NULL: none), kept within Python's years, 1 to 9999, with two days for
-- time zones.
(
    SELECT CASE WHEN earliest.due IS NOT NULL THEN
               (least(greatest(earliest.due, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00')
                   AT TIME ZONE %(zone)s::text) AT TIME ZONE 'UTC'
           END
    FROM (
        SELECT min(d.{due}){utc} AS due
        FROM {delayed} d
        WHERE {{from_since}} AND isfinite(d.{due})
    ) earliest
)

-- name: next_due
-- Returns the earliest Due from `since` on.
SELECT {{first_due}} AS due;

-- name: upcoming
-- Returns the same; how many earlier messages are in back-off, and when the first of them is tried again.
SELECT {{first_due}} AS due, count(*) AS messages, min(a.next_attempt_at) AS next_attempt
FROM {attempts} a JOIN {delayed} d ON d.{id} = a.message_key
WHERE a.source = %(source)s AND a.next_attempt_at > clock_timestamp() AND d.{due} < {{since}};

-- name: locked_rows
-- Returns how many of the 10,000 messages that have been due longest another session or a prepared transaction has
-- locked; which one it is, and since when, as far as this role may see; and their earliest Due. Locks nothing.
SELECT count(*) AS messages, min(d.due) AS due,
       CASE WHEN p.gid IS NULL
            THEN format('session %%s%%s of role %%s', l.pid, ' (' || nullif(a.application_name, '') || ')', a.usename)
            ELSE format('prepared transaction %%L of role %%s', p.gid, p.owner)
       END AS holder,
       coalesce(a.xact_start, p.prepared) AS since
FROM (
    SELECT d.xmax AS changer, d.{due}{utc} AS due
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc}
    ORDER BY d.{due}
    LIMIT 10000
) d
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = d.changer AND l.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid AND l.pid IS NULL
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
GROUP BY l.pid, a.application_name, p.gid, a.usename, p.owner, a.xact_start, p.prepared
ORDER BY messages DESC;

-- name: count_stored
-- Returns how many messages the store holds.
SELECT count(*) AS stored FROM {delayed};

-- name: count_stored_since
-- Returns how many messages have this Due or a later one.
SELECT count(*) AS stored FROM {delayed} d WHERE {{from_since}};

-- name: due_destinations
-- Returns the destinations of the 10,000 eligible messages that have been due longest, and how many go to
-- each: at most 100, the most frequent first.
SELECT destination, count(*) AS messages
FROM (
    SELECT {{readable: {destination}}} AS destination
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND {{from_since}}
      AND {destination} <> ''
      AND {{eligible: clock_timestamp()}}
    ORDER BY d.{due}
    LIMIT 10000
) oldest
GROUP BY destination
ORDER BY messages DESC, destination
LIMIT 100;

-- name: stored_destinations
-- Returns the destinations of all messages with a Due, and how many go to each: at most 1,000, in
-- descending order of their messages. Reads the whole table.
SELECT {{readable: {destination}}} AS destination, count(*) AS messages
FROM {delayed} d
WHERE {destination} <> '' AND d.{due} IS NOT NULL
GROUP BY 1
ORDER BY messages DESC, destination
LIMIT 1000;

-- name: estimate_rows
-- Returns about how many rows a table and its partitions hold, by the planner's statistics and the sizes.
WITH RECURSIVE parts (oid) AS (
    SELECT t.oid
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = %(schema)s::text AND t.relname = %(table)s::text
    UNION ALL
    SELECT i.inhrelid FROM parts p JOIN pg_inherits i ON i.inhparent = p.oid
)
SELECT coalesce(sum(greatest(c.reltuples, pg_relation_size(c.oid) / 2000)), 0)::bigint AS rows
FROM parts p JOIN pg_class c ON c.oid = p.oid;

-- name: plan_bounds
-- Returns the first Due and place of each slice and the last of all, and how many messages are eligible in all and in
-- a slice. Slices are equal: `slices` at most, fewer if below `least_rows`, more if above `most_rows`.
SELECT due::text AS due, place::text AS place, total, size,
       -- In PostgreSQL 13 a range of places costs a scan of the table; in each part of one, it costs a range.
       current_setting('server_version_num')::int >= 140000
           AND part NOT IN (SELECT inhrelid FROM pg_inherits) AS has_ranges,
       -- Of the table.
       pg_relation_size(part) / current_setting('block_size')::int AS pages
FROM (
    SELECT pending.*, (total - 1) / greatest(
        least(%(slices)s::bigint, (total - 1) / %(least_rows)s::bigint + 1),
        (total - 1) / %(most_rows)s::bigint + 1
    ) + 1 AS size
    FROM (
        SELECT d.{due} AS due, d.ctid AS place, d.tableoid AS part,
               row_number() OVER (ORDER BY d.{due}, d.ctid) - 1 AS position,
               count(*) OVER () AS total
        FROM {delayed} d
        WHERE d.{due} < %(horizon)s::timestamptz{utc} AND {{from_since}}
          AND {{eligible: statement_timestamp()}}
    ) pending
) sliced
WHERE position %% size = 0 OR position = total - 1
ORDER BY position;

-- fragment: last_headers
-- The transport adds the forward destination as the last header. To search all headers of a paused message takes three
-- times as long; a destination that is not found here is found by the claim.
substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299)

-- fragment: forwarded_to
-- The headers after the beginning of the forward destination.
substring({{last_headers}} from nullif(position('"NServiceBus.SqlServer.ForwardDestination":"'::bytea in {{last_headers}}), 0) + 44)

-- fragment: forward
-- The text after the beginning of the forward destination, if NServiceBus wrote it; of other writers, all from the comma
-- before its name on. To look for that in all headers by a regular expression takes 200 µs for each message.
coalesce(
    nullif(split_part(d.headers, ',"NServiceBus.SqlServer.ForwardDestination":"', 2), ''),
    CASE WHEN position('"NServiceBus.SqlServer.ForwardDestination"' in d.headers) > 0 THEN
        substring(right(split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 1), 40) from E',[ \t\r\n]*$')
        || '"NServiceBus.SqlServer.ForwardDestination"'
        || split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 2)
    END,
    ''
)

-- fragment: planned_forward
-- The text after a destination that is not the last header may be long. Quotes in an address are escaped.
CASE
    WHEN k.forward = '' OR (octet_length(k.forward) <= 300 AND split_part(k.forward, '",', 2) = '') THEN k.forward
    ELSE '?'
END

-- fragment: planned
SELECT d.{due} AS due, d.ctid AS place, d.{id} AS id, {{readable: {forward}}} AS forward,
       -- A row in a part of the table has no place in all of it.
       d.tableoid IN (SELECT inhrelid FROM pg_inherits) AS is_part,
       coalesce(octet_length(d.{headers}), 0)::bigint + coalesce(octet_length(d.{body}), 0) AS bytes
FROM {delayed} d
WHERE $1
  AND {{not_paused: {paused}}}

-- name: plan_claim_keys
-- Returns keys (of `most` messages at most) with places, bytes and destinations, by Due and place, in numbered rows of
-- `chunk`, and how many the slice has. An empty slice has a row: so a task can tell it from a read that broke off.
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.forwards, chunk.chunk
FROM (VALUES {bounds}) AS s (slice, first_due, first_place, end_due, end_place, by_place)
LEFT JOIN LATERAL (
    SELECT string_agg(k.id::text || CASE WHEN k.is_part THEN '' ELSE encode(tidsend(k.place), 'hex') END,
                      ',' ORDER BY k.position) AS claim_keys,
           string_agg(k.bytes::text, ',' ORDER BY k.position) AS sizes,
           -- JSON never has this character.
           string_agg(replace({planned_forward}, E'\x1f', ''), E'\x1f' ORDER BY k.position) AS forwards,
           (sum(count(*)) OVER ())::bigint AS total,
           k.position / {chunk}::bigint AS chunk
    FROM (
        SELECT pending.*,
               -- Rows of one page come into one batch, so that few pages change twice.
               row_number() OVER (ORDER BY pending.due, pending.place) - 1 AS position
        FROM (
            SELECT planned.*
            FROM (
                {{planned
                    NOT s.by_place AND d.{due} < {horizon}::timestamptz{utc}
                      AND (d.{due}, d.ctid) >= (s.first_due, s.first_place)
                      AND (d.{due}, d.ctid) < (s.end_due, s.end_place)
                }}
                UNION ALL
                -- No index serves this comparison of Dues: one would lead to all rows of the Due.
                {{planned
                    s.by_place AND d.{due} IS NOT DISTINCT FROM s.first_due
                      AND d.ctid >= s.first_place AND d.ctid < s.end_place
                }}
            ) planned
            -- Of both: the planner takes a range of places for few rows, and would read all counters for each.
            WHERE NOT EXISTS (
                SELECT FROM {attempts} a
                WHERE a.source = {source} AND a.message_key = planned.id
                  AND a.next_attempt_at > statement_timestamp()
            )
            -- Without it the planner would look at the sizes last, and sort headers and bodies.
            LIMIT {most}::bigint
        ) pending
    ) k
    GROUP BY k.position / {chunk}::bigint
) chunk ON true

-- name: read_slice
-- Returns the claim keys of one slice, as `plan_claim_keys` does.
SELECT claim_keys, sizes, total, forwards FROM ({query}) AS due_messages WHERE slice = {slice} ORDER BY chunk;
