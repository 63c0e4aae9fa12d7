-- Setup: properties of the server and of tables, the tables of the store and of the journal, the ledger that
-- a source is bound to, and the checks of `doctor`. Queue tables are in queue.sql.
--
-- Fragments of other files: readable (batch.sql); from_queue_tables (queue.sql).

-- name: describe_session
-- Returns the server's version, whether it is a replica or the session read-only, the database's encoding, and
-- whether the server writes commits to its disk.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number, pg_is_in_recovery() AS is_replica,
       current_setting('transaction_read_only') = 'on' AS is_read_only,
       current_setting('server_encoding') AS encoding, current_setting('fsync') = 'on' AS is_synced;

-- name: describe_schema
-- Returns whether the session may create tables in a schema. No row: the schema does not exist.
SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') AS may_create
FROM pg_namespace
WHERE nspname = %(schema)s::text;

-- fragment: parts_of_table
(SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) AS part (oid) JOIN pg_class p ON p.oid = part.oid

-- name: describe_tables
-- Returns kinds, comments, columns, this role, the rights that it lacks on each table and its sequences, policies
-- that hide rows, and whether a part is unlogged, is published without an identity, has no unique key, or has hooks.
SELECT n.nspname AS schema, c.relname AS table, c.relkind::text AS kind, obj_description(c.oid, 'pg_class') AS mark,
       EXISTS (SELECT FROM {{parts_of_table}} WHERE p.relpersistence = 'u') AS is_unlogged,
       c.relhasrules OR c.relrowsecurity AS has_rules, current_user::text AS role,
       -- The restrictive policies; NULL if no policy could hide a row from this role, or refuse one, for these rights. A
       -- policy that is `true` does neither.
       CASE WHEN row_security_active(c.oid) AND EXISTS (
           SELECT
           FROM unnest(asked.rights) AS wanted (privilege)
           LEFT JOIN LATERAL (
               SELECT p.polpermissive AS is_permissive,
                      (wanted.privilege = 'INSERT' OR pg_get_expr(p.polqual, p.polrelid) = 'true')
                      AND (
                          wanted.privilege IN ('SELECT', 'DELETE')
                          OR coalesce(pg_get_expr(p.polwithcheck, p.polrelid), pg_get_expr(p.polqual, p.polrelid)) = 'true'
                      ) AS is_open
               FROM pg_policy p
               WHERE p.polrelid = c.oid
                 AND p.polcmd::text IN ('*', translate(left(wanted.privilege, 1), 'SIUD', 'rawd'))
                 AND EXISTS (SELECT FROM unnest(p.polroles) AS r (role) WHERE role = 0 OR pg_has_role(role, 'USAGE'))
           ) policy ON true
           GROUP BY wanted.privilege
           HAVING NOT coalesce(bool_or(is_permissive AND is_open), false) OR bool_or(NOT is_permissive AND NOT is_open)
       ) THEN ARRAY(
           SELECT p.polname::text FROM pg_policy p WHERE p.polrelid = c.oid AND NOT p.polpermissive ORDER BY 1
       ) END AS hidden_by,
       EXISTS (
           SELECT FROM pg_index i
           WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL
       ) AS has_key,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_primary_key,
       (
           SELECT min(p.oid::regclass::text)
           FROM {{parts_of_table}}
           WHERE p.relkind = 'r' AND p.relpersistence = 'p' AND p.relreplident <> 'f'
             AND NOT EXISTS (
                 SELECT FROM pg_index i
                 WHERE i.indrelid = p.oid
                   AND CASE p.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END
             )
             AND EXISTS (
                 SELECT FROM pg_publication b
                 WHERE (
                     b.pubdelete AND 'DELETE' = ANY(asked.rights)
                     OR b.pubupdate AND 'UPDATE' = ANY(asked.rights)
                   )
                   AND (
                     b.puballtables
                     OR EXISTS (SELECT FROM pg_get_publication_tables(b.pubname) t WHERE t.relid IN (p.oid, c.oid))
                   )
             )
       ) AS published,
       ARRAY(
           SELECT 'trigger ' || g.tgname
           FROM {{parts_of_table}}
           JOIN pg_trigger g ON g.tgrelid = p.oid
           CROSS JOIN unnest(asked.rights) AS event (name)
           -- INSERT (4), DELETE (8), UPDATE (16); one that runs after the statement could refuse it
           WHERE NOT g.tgisinternal AND g.tgenabled IN ('O', 'A')
             AND g.tgtype & CASE name WHEN 'INSERT' THEN 4 WHEN 'DELETE' THEN 8 WHEN 'UPDATE' THEN 16 ELSE 0 END > 0
           UNION
           SELECT 'rule ' || w.rulename
           FROM pg_rewrite w CROSS JOIN unnest(asked.rights) AS event (name)
           WHERE w.ev_class = c.oid AND w.ev_type::text = translate(left(name, 1), 'SUID', '0234') AND name <> 'SELECT'
           ORDER BY 1
       ) AS hooks,
       ARRAY(
           SELECT a.attname::text
           FROM pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           ORDER BY a.attnum
       ) AS column_names,
       ARRAY(
           SELECT format_type(a.atttypid, NULL)
           FROM pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
           ORDER BY a.attnum
       ) AS column_types,
       ARRAY(
           SELECT wanted.privilege FROM unnest(asked.rights) AS wanted (privilege)
           WHERE NOT has_schema_privilege(n.oid, 'USAGE') OR NOT has_table_privilege(c.oid, wanted.privilege)
       ) AS missing_rights,
       ARRAY(
           -- Of the columns' defaults. GENERATED AS IDENTITY is none, and takes no right.
           SELECT DISTINCT s.seqrelid::regclass::text
           FROM pg_attrdef a
           JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
               AND d.refclassid = 'pg_class'::regclass
           JOIN pg_sequence s ON s.seqrelid = d.refobjid
           WHERE 'INSERT' = ANY(asked.rights) AND a.adrelid = c.oid
             AND NOT has_sequence_privilege(s.seqrelid, 'USAGE, UPDATE')
       ) AS missing_sequences
-- All tables at once: to plan this takes longer than to run it.
FROM (
    SELECT t.schema, t.name, string_to_array(t.rights, ',') AS rights
    FROM unnest(%(schemas)s::text[], %(tables)s::text[], %(rights)s::text[]) AS t (schema, name, rights)
) asked
JOIN pg_namespace n ON n.nspname = asked.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name;

-- name: lock_any
-- Returns and locks some message, due or not; skips rows that others hold. No row: none.
SELECT d.{id}::text AS id FROM {delayed} d LIMIT 1 FOR UPDATE OF d SKIP LOCKED;

-- name: similar_tables
-- Returns the schemas and names of tables whose names end alike, at most 1,000.
SELECT n.nspname AS schema, c.relname AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND right(c.relname, length(%(ending)s)) = %(ending)s::text
ORDER BY n.nspname, c.relname
LIMIT 1000;

-- name: describe_indexes
-- Returns the first column of each index of a table that can find ranges, and whether it leaves rows out.
SELECT a.attname AS column_name, i.indpred IS NOT NULL AS is_partial
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text AND i.indisvalid AND m.amname = 'btree';

-- name: create_delayed
-- Creates the delayed table and its index on Due as the transport does, unless they exist.
CREATE TABLE IF NOT EXISTS {delayed} (
    id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    headers text NOT NULL,
    body bytea,
    due timestamptz NOT NULL
) WITH (fillfactor=100);
CREATE INDEX IF NOT EXISTS {index} ON {delayed} (due);

-- name: create_journal
-- Creates the tables that duesweep keeps next to the store: the ledger that each source is bound to,
-- the sweeps and commands that are not settled yet, their results, and the retry counters.
CREATE TABLE IF NOT EXISTS {bindings} (
    source text PRIMARY KEY,
    delayed text NOT NULL,
    ledger_id uuid NOT NULL,
    bound_at timestamptz NOT NULL DEFAULT now(),
    -- Which journal this is, which sweep or command the ledger got last, and where the ledger was then.
    journal_id uuid,
    settled_sweep uuid,
    settled_at timestamptz,
    place text
);
CREATE TABLE IF NOT EXISTS {sweeps} (
    sweep_id uuid PRIMARY KEY,
    source text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    horizon timestamptz NOT NULL,
    planned bigint[] NOT NULL DEFAULT ARRAY[]::bigint[],
    exhausted bigint NOT NULL DEFAULT 0,
    over_limit bigint NOT NULL DEFAULT 0,
    attempts_changed boolean NOT NULL DEFAULT false,
    closed_at timestamptz,
    abandoned boolean NOT NULL DEFAULT false,
    remaining bigint NOT NULL DEFAULT 0,
    reason text,
    engine text,
    stop_at timestamptz,
    sealed_at timestamptz,
    -- An operator's command; NULL: a sweep.
    command text,
    given_by text,
    given_reason text
);
CREATE INDEX IF NOT EXISTS duesweep_sweeps_source ON {sweeps} (source);
CREATE TABLE IF NOT EXISTS {journal} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id uuid NOT NULL,
    slice integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- kind 'batch': the outcomes, and how many messages were delivered or failed
    dispatched integer,
    failed integer,
    body_bytes bigint,
    attempts_changed boolean,
    lateness_ms bigint[],
    outcomes bytea,
    -- kind 'slice': the end of a slice, and the results of its task's claim keys; error_text has the batches
    -- that the store could not move
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    held bigint,
    "left" bigint,
    reason text,
    breakers text,
    -- kind 'exhausted': the whole message
    message_key uuid,
    message_id text,
    message_type text,
    destination text,
    queue text,
    due timestamptz,
    dispatched_at timestamptz,
    attempts integer,
    first_failed_at timestamptz,
    error_class text,
    error_text text,
    stack text,
    headers text,
    body bytea
);
CREATE INDEX IF NOT EXISTS duesweep_journal_sweep ON {journal} (sweep_id, kind);
CREATE TABLE IF NOT EXISTS {attempts} (
    source text NOT NULL,
    message_key uuid NOT NULL,
    message_id text,
    destination text,
    attempts integer NOT NULL,
    first_failed_at timestamptz NOT NULL,
    last_failed_at timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    error_class text NOT NULL,
    error_text text NOT NULL,
    PRIMARY KEY (source, message_key)
);
-- Changes by an operator's commands. The reference keeps earlier versions, which know of no commands,
-- from deleting one before its changes are in the ledger.
CREATE TABLE IF NOT EXISTS {changes} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id uuid NOT NULL REFERENCES {sweeps},
    change text NOT NULL,
    changed_us bigint NOT NULL,
    message_key text NOT NULL,
    message_id text,
    message_type text,
    destination text,
    due_before_us bigint,
    due_after_us bigint,
    queue text,
    "of" text,
    new_key text,
    attempts integer NOT NULL,
    body_bytes bigint NOT NULL,
    -- Of a message that was cancelled, as they were stored.
    headers text,
    body bytea
);
CREATE INDEX IF NOT EXISTS duesweep_changes_sweep ON {changes} (sweep_id);
CREATE TABLE IF NOT EXISTS {pauses} (
    source text NOT NULL,
    pattern text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until_at timestamptz,
    given_by text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (source, pattern)
);
CREATE TABLE IF NOT EXISTS {limits} (
    source text NOT NULL,
    pattern text NOT NULL,
    free_at timestamptz NOT NULL,
    PRIMARY KEY (source, pattern)
);
CREATE TABLE IF NOT EXISTS {leases} (
    name text PRIMARY KEY,
    holder uuid NOT NULL,
    -- For people, and what tells it from all other processes.
    process text NOT NULL,
    mark text NOT NULL,
    taken_at timestamptz NOT NULL,
    until_at timestamptz NOT NULL
);
-- A journal of the first format may lack these.
ALTER TABLE {bindings} ADD COLUMN IF NOT EXISTS journal_id uuid,
    ADD COLUMN IF NOT EXISTS settled_sweep uuid, ADD COLUMN IF NOT EXISTS settled_at timestamptz,
    ADD COLUMN IF NOT EXISTS place text;
-- Tombstones are compressed already, and a batch's lateness is hardly worth it: to try it costs the
-- server more than to write them.
ALTER TABLE {journal} ALTER COLUMN outcomes SET STORAGE EXTERNAL;
ALTER TABLE {journal} ALTER COLUMN lateness_ms SET STORAGE EXTERNAL;

-- name: read_binding
-- Returns a source's delayed table, the ledger that it is bound to and since when, which journal this is, the sweep
-- or command that the ledger got last, and where the ledger was.
SELECT found.*
FROM (
    SELECT NULL::uuid AS journal_id, NULL::uuid AS settled_sweep, NULL::timestamptz AS settled_at, NULL::text AS place
) lacking
-- The name of a column that a journal of the first format lacks means the one above.
CROSS JOIN LATERAL (
    SELECT delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place
    FROM {bindings}
    WHERE source = %(source)s
) found;

-- name: bind
-- Binds a source, which is a delayed table, to a ledger, unless it is bound and was not freed. Waits for a session
-- that binds the same source.
INSERT INTO {bindings} AS bound (source, delayed, ledger_id) VALUES (%(source)s, %(delayed)s, %(ledger_id)s)
ON CONFLICT (source) DO UPDATE SET ledger_id = excluded.ledger_id
WHERE bound.ledger_id = '00000000-0000-0000-0000-000000000000';

-- name: unbind
-- Removes a source's binding to its ledger.
DELETE FROM {bindings} WHERE source = %(source)s;

-- name: free
-- Frees a source from its ledger. The journal's id stays; the ledger is nil until the next sweep binds it.
UPDATE {bindings}
SET ledger_id = '00000000-0000-0000-0000-000000000000', settled_sweep = NULL, settled_at = NULL
WHERE source = %(source)s;

-- name: server_identity
-- Returns what tells this database from one of the same name on another server.
SELECT s.system_identifier::text || '/' || d.oid::text AS identity
FROM pg_control_system() s, pg_database d
WHERE d.datname = current_database();

-- name: name_journal
-- Gives a source's journal its id, unless it has one.
UPDATE {bindings} SET journal_id = %(journal_id)s WHERE source = %(source)s AND journal_id IS NULL;

-- name: keep_place
-- Notes where the ledger of a source is. Versions that noted no place noted no sweep either, so a sweep that is noted
-- without one is forgotten. Not in setup: triggers of who created the table would run as the administrator.
UPDATE {bindings}
SET place = %(place)s,
    settled_sweep = CASE WHEN place IS NOT NULL THEN settled_sweep END,
    settled_at = CASE WHEN place IS NOT NULL THEN settled_at END
WHERE source = %(source)s;

-- name: note_settled
-- Notes that the ledger has a sweep or a command. One that has no rows there, or ended before, is not noted.
UPDATE {bindings} b
SET settled_sweep = s.sweep_id, settled_at = s.closed_at
FROM {sweeps} s
WHERE s.sweep_id = %(sweep_id)s AND b.source = s.source
  AND (b.settled_at IS NULL OR b.settled_at <= s.closed_at)
  AND (s.command IS NULL OR EXISTS (SELECT FROM {changes} c WHERE c.sweep_id = s.sweep_id));

-- name: doctor_clock
-- Returns the server's clock.
SELECT clock_timestamp() AS now;

-- name: doctor_zone
-- Returns by how many minutes the clocks of a time zone change within the coming year.
SELECT max(minutes) - min(minutes) AS minutes
FROM (
    SELECT (EXTRACT(EPOCH FROM (moment AT TIME ZONE %(zone)s) - (moment AT TIME ZONE 'UTC')) / 60)::integer AS minutes
    FROM generate_series(now(), now() + interval '1 year', interval '1 month') AS moment
) AS offsets;

-- name: doctor_references
-- Returns the foreign keys by which rows of other tables refer to a table, and keep theirs there from removal.
SELECT f.conname AS name, f.conrelid::regclass::text AS table
FROM pg_constraint f
JOIN pg_class c ON c.oid = f.confrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s::text AND c.relname = %(table)s::text AND f.contype = 'f' AND f.confdeltype IN ('a', 'r')
ORDER BY f.conname;

-- name: doctor_sequences
-- Returns the sequence behind `seq` of every queue table: its last number (NULL: it is new, or it is hidden, as
-- this role may not read it), and the highest number that both it and its column can hold.
WITH queue_tables AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS table
    {{from_queue_tables: c.oid, n.nspname, c.relname}}
)
SELECT q.schema, q.table, format_type(a.atttypid, NULL) AS column_type, s.seqrelid::regclass::text AS sequence,
       least(s.seqmax, CASE WHEN a.attlen > 0 THEN 2::numeric ^ (8 * a.attlen - 1) - 1 END)::bigint AS most,
       CASE
           WHEN has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') THEN pg_sequence_last_value(s.seqrelid)
       END AS last,
       NOT has_sequence_privilege(s.seqrelid, 'USAGE, SELECT') AS is_hidden
FROM queue_tables q
JOIN pg_attribute a ON a.attrelid = q.oid AND a.attname = 'seq'
JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = q.oid AND d.refobjsubid = a.attnum
    AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
JOIN pg_sequence s ON s.seqrelid = d.objid
ORDER BY q.schema, q.table;

-- name: doctor_waiting
-- Returns the headers of the messages that are due first, and their destinations if these are a column.
SELECT {{readable: d.{headers}}} AS headers, {{readable: {destination}}} AS destination
FROM {delayed} d
WHERE d.{due} IS NOT NULL
ORDER BY d.{due}
LIMIT %(most)s::integer;
