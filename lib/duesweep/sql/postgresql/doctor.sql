-- Doctor: what the command `doctor` asks the server. Nothing here changes anything.

-- name: doctor_server
-- Returns the server's version, whether it is a replica, and this session's role. Takes no locks.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number,
       pg_is_in_recovery() AS is_replica, current_user::text AS role;

-- name: doctor_clock
-- Returns the server's clock, and the id of the server process that answers.
SELECT clock_timestamp() AS now, pg_backend_pid() AS backend;

-- name: doctor_zone
-- Returns how many minutes a time zone is ahead of UTC in the coming year, at the least and at the
-- most.
SELECT min(minutes) AS least, max(minutes) AS most
FROM (
    SELECT (EXTRACT(EPOCH FROM (moment AT TIME ZONE %(zone)s) - (moment AT TIME ZONE 'UTC')) / 60)::integer AS minutes
    FROM generate_series(now(), now() + interval '1 year', interval '1 month') AS moment
) AS offsets;

-- name: doctor_time_outs
-- Returns the session's time-outs in milliseconds, and where each comes from. Also returns what
-- each is when the session sets nothing, and who that value is set for. Takes no locks.
SELECT s.name, s.setting::bigint AS milliseconds, s.source, s.reset_val::bigint AS default_milliseconds,
       coalesce((
           SELECT CASE
                      WHEN r.setrole <> 0 AND r.setdatabase <> 0 THEN 'this role in this database'
                      WHEN r.setrole <> 0 THEN 'this role'
                      WHEN r.setdatabase <> 0 THEN 'this database'
                      ELSE 'all roles'
                  END
           FROM pg_db_role_setting r
           WHERE r.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = session_user))
             AND r.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
             AND EXISTS (SELECT FROM unnest(r.setconfig) AS c (text) WHERE c.text LIKE s.name || '=%%')
           ORDER BY r.setrole <> 0 DESC, r.setdatabase <> 0 DESC
           LIMIT 1
       ), 'the server or the dsn') AS origin
FROM pg_settings s
WHERE s.name IN (
    'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout',
    'idle_session_timeout', 'transaction_timeout'
)
ORDER BY s.name;

-- name: doctor_sequences
-- Returns the sequence behind `seq` of every table that has the columns of a queue table: its last
-- number (NULL if it is new, or if this role may not read it), its highest number, and whether this
-- role may use it. Takes no locks.
WITH queue_tables AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS table
    {{from_queue_tables: c.oid, n.nspname, c.relname}}
)
SELECT q.schema, q.table, format_type(a.atttypid, NULL) AS column_type, s.seqmax AS most,
       quote_ident(sn.nspname) || '.' || quote_ident(sc.relname) AS sequence,
       CASE
           WHEN has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') THEN pg_sequence_last_value(s.seqrelid)
       END AS last,
       NOT has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') AS is_hidden,
       d.deptype = 'i' OR has_sequence_privilege(s.seqrelid, 'USAGE, UPDATE') AS may_use
FROM queue_tables q
JOIN pg_attribute a ON a.attrelid = q.oid AND a.attname = 'seq'
JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = q.oid AND d.refobjsubid = a.attnum
    AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
JOIN pg_sequence s ON s.seqrelid = d.objid
JOIN pg_class sc ON sc.oid = s.seqrelid
JOIN pg_namespace sn ON sn.oid = sc.relnamespace
ORDER BY q.schema, q.table;

-- name: doctor_waiting
-- Returns the headers of the messages that are due first, and their destinations if these are a
-- column. Takes no locks.
SELECT d.{headers} AS headers, {destination} AS destination
FROM {delayed} d
WHERE d.{due} IS NOT NULL
ORDER BY d.{due}
LIMIT %(most)s::integer;
