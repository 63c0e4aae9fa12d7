-- Plan: the horizon, what is due and eligible, and how it is cut into slices. In the order of a sweep.

-- name: session_zone
-- Returns the session's time zone and where it comes from.
SELECT setting AS zone, source FROM pg_settings WHERE name = 'TimeZone';

-- name: writer_zones
-- Returns the time zone that a role's or the database's settings give to each role that writes to
-- the delayed table: its owner, and whoever may log in and insert; NULL where the server's default
-- holds. No locks.
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
WHERE n.nspname = %(schema)s AND c.relname = %(table)s;

-- name: set_zone
-- Returns the session's time zone, set for this transaction only.
SELECT set_config('TimeZone', %(zone)s, true) AS zone;

-- name: horizon
-- Returns the instant before which NServiceBus's own predicate (Due < now() AT TIME ZONE 'UTC')
-- calls a message due, and the server's time. To be run in the writers' time zone. No locks.
SELECT timezone('UTC', now())::timestamptz AS horizon, now() AS server_time;

-- name: find_pending
-- Returns whether a message is eligible. No locks.
SELECT EXISTS (
    SELECT FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc}
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
) AS found;

-- name: count_pending
-- Returns how many messages are eligible. No locks.
SELECT count(*) AS pending
FROM {delayed} d
WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
  AND NOT EXISTS (
    SELECT FROM {attempts} a
    WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
  );

-- name: count_timeless
-- Returns how many messages have no Time, and so are never due. No locks.
SELECT count(*) AS timeless FROM {delayed} d WHERE d.{due} IS NULL;

-- name: count_stored
-- Returns how many messages there are. No locks.
SELECT count(*) AS stored FROM {delayed};

-- name: count_stored_since
-- Returns how many messages have a Due from then on. No locks.
SELECT count(*) AS stored FROM {delayed} d WHERE d.{due} >= %(since)s::timestamptz{utc};

-- name: due_destinations
-- Returns where the messages go that are eligible, of the 10,000 that have been due for the
-- longest, and how many go there; at most 100, the commonest first. No locks.
SELECT destination, count(*) AS messages
FROM (
    SELECT {destination} AS destination
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
      AND {destination} <> ''
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
    ORDER BY d.{due}
    LIMIT 10000
) oldest
GROUP BY destination
ORDER BY messages DESC, destination
LIMIT 100;

-- name: stored_destinations
-- Returns where all messages with a Due go, and how many go there; at most 1,000, the commonest first.
-- No locks.
SELECT {destination} AS destination, count(*) AS messages
FROM {delayed} d
WHERE {destination} <> '' AND d.{due} IS NOT NULL
GROUP BY {destination}
ORDER BY messages DESC, destination
LIMIT 1000;

-- name: estimate_rows
-- Returns about how many rows a table has, with its partitions: by statistics and size. No locks.
SELECT coalesce(sum(greatest(c.reltuples, pg_relation_size(c.oid) / 2000)), 0)::bigint AS rows
FROM pg_class t
JOIN pg_namespace n ON n.oid = t.relnamespace
CROSS JOIN LATERAL (
    SELECT t.oid UNION ALL SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = t.oid
) AS part (oid)
JOIN pg_class c ON c.oid = part.oid
WHERE n.nspname = %(schema)s AND t.relname = %(table)s;

-- name: set_sort_memory
-- Returns the session's sort memory, set for this transaction only: a million keys sort in memory.
SELECT set_config('work_mem', '128MB', true) AS work_mem;

-- name: plan_bounds
-- Returns the first (due, id) of each of at most %(slices)s slices of equal size, and how many
-- messages are eligible in all. Ordered by the pair, so that one Due can span slices. No locks.
SELECT due::text AS due, id::text AS id, total
FROM (
    SELECT d.{due} AS due, d.{id} AS id,
           row_number() OVER (ORDER BY d.{due}, d.{id}) - 1 AS position,
           count(*) OVER () AS total
    FROM {delayed} d
    WHERE d.{due} < %(horizon)s::timestamptz{utc} AND d.{due} >= %(since)s::timestamptz{utc}
      AND NOT EXISTS (
        SELECT FROM {attempts} a
        WHERE a.source = %(source)s AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
      )
) pending
WHERE position %% ((total + %(slices)s - 1) / %(slices)s) = 0
ORDER BY position;

-- name: plan_claim_keys
-- Returns the keys that are eligible, oldest first, a thousand to a row: `claim_keys` and, in
-- bytes, `sizes`, each separated by commas; `total` is how many the slice has in all its rows. A slice
-- without keys has a row, too. For JDBC, as a subquery whose `slice` is a partition's predicate;
-- {horizon} and {source} are literals, and so is what takes the place of the comment. No locks.
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total
FROM (VALUES /* bounds */) AS s (slice, first_due, first_id, end_due, end_id)
LEFT JOIN LATERAL (
    SELECT string_agg(k.id::text, ',' ORDER BY k.position) AS claim_keys,
           string_agg(k.bytes::text, ',' ORDER BY k.position) AS sizes,
           (sum(count(*)) OVER ())::bigint AS total
    FROM (
        SELECT d.{id} AS id,
               coalesce(octet_length(d.{headers}), 0)::bigint + coalesce(octet_length(d.{body}), 0) AS bytes,
               row_number() OVER (ORDER BY d.{due}, d.{id}) - 1 AS position
        FROM {delayed} d
        WHERE d.{due} < {horizon}::timestamptz{utc}
          AND (d.{due}, d.{id}) >= (s.first_due, s.first_id) AND (d.{due}, d.{id}) < (s.end_due, s.end_id)
          AND NOT EXISTS (
            SELECT FROM {attempts} a
            WHERE a.source = {source} AND a.message_key = d.{id} AND a.next_attempt_at > clock_timestamp()
          )
    ) k
    GROUP BY k.position / 1000
) chunk ON true
