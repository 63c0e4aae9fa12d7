-- without a name
BEGIN

-- without a name
CLOSE "duesweep_look"

-- without a name
CLOSE "duesweep_stored_keys"

-- without a name
COMMIT

-- without a name
COPY "public"."Billing" (id, headers, body) FROM STDIN (FORMAT BINARY)

-- without a name
COPY "public"."Shipping" (id, headers, body) FROM STDIN (FORMAT BINARY)

-- without a name
COPY "public"."error" (id, headers, body) FROM STDIN (FORMAT BINARY)

-- name: DECLARE "duesweep_look" CURSOR FOR look
-- $1 ?, $2 ?, $3 ? or timestamptz
DECLARE "duesweep_look" CURSOR FOR 
SELECT d.id::text AS message_key, d.headers AS headers, NULL::bytea AS body, NULL AS destination,
       coalesce(octet_length(d.body), 0) AS body_bytes,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM i.instant) * 1000000)::bigint END AS instant_us
FROM "public"."Sales.Orders.Delayed" d
CROSS JOIN LATERAL (SELECT least(d.due, '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
        ELSE (c.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
    END AS instant
) i
WHERE d.due IS NOT NULL
  AND ($2::timestamptz IS NULL OR (
        d.due >= (($2::timestamptz AT TIME ZONE 'UTC' - interval '3 hours')
            AT TIME ZONE $1::text)
        AND i.instant >= $2::timestamptz
      ))
  AND ($3::timestamptz IS NULL OR (
        d.due < (($3::timestamptz AT TIME ZONE 'UTC' + interval '3 hours')
            AT TIME ZONE $1::text)
        AND i.instant < $3::timestamptz
      ))
ORDER BY d.due;

-- name: DECLARE "duesweep_stored_keys" CURSOR FOR stored_keys
DECLARE "duesweep_stored_keys" CURSOR FOR 
SELECT d.id::text AS message_key FROM "public"."Sales.Orders.Delayed" d;

-- without a name
FETCH FORWARD 1000 FROM "duesweep_look"

-- without a name
FETCH FORWARD 20000 FROM "duesweep_stored_keys"

-- without a name
RELEASE "_pg3_2"

-- without a name
ROLLBACK

-- without a name
SAVEPOINT "_pg3_2"

-- without a name
SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SELECT set_config(name, wanted.value, false) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('TimeZone', 'UTC'), ('DateStyle', 'ISO'), ('client_encoding', 'UTF8'), ('default_transaction_isolation', 'read committed'), ('quote_all_identifiers', 'off'), ('synchronous_commit', 'on'), ('lock_timeout', '2000'), ('statement_timeout', '15000'), ('idle_in_transaction_session_timeout', '2000'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'), ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS wanted (name, value) JOIN pg_settings USING (name) WHERE (name <> 'synchronous_commit' OR setting = 'off') AND pg_backend_pid() = <process>; SELECT pg_backend_pid(), reset_val::text FROM pg_settings WHERE name = 'search_path'

-- without a name
SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SELECT set_config(name, wanted.value, false) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('TimeZone', 'UTC'), ('DateStyle', 'ISO'), ('client_encoding', 'UTF8'), ('default_transaction_isolation', 'read committed'), ('quote_all_identifiers', 'off'), ('synchronous_commit', 'on'), ('lock_timeout', '20000'), ('statement_timeout', '30000'), ('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'), ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS wanted (name, value) JOIN pg_settings USING (name) WHERE (name <> 'synchronous_commit' OR setting = 'off') AND pg_backend_pid() = <process>; SELECT pg_backend_pid(), reset_val::text FROM pg_settings WHERE name = 'search_path'

-- without a name
SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SELECT set_config(name, wanted.value, false) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('TimeZone', 'UTC'), ('DateStyle', 'ISO'), ('client_encoding', 'UTF8'), ('default_transaction_isolation', 'read committed'), ('quote_all_identifiers', 'off'), ('synchronous_commit', 'on'), ('lock_timeout', '20000'), ('statement_timeout', '30000'), ('idle_in_transaction_session_timeout', '10000'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'), ('tcp_keepalives_idle', '15'), ('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')) AS wanted (name, value) JOIN pg_settings USING (name) WHERE (name <> 'synchronous_commit' OR setting = 'off') AND pg_backend_pid() = <process>; SELECT pg_backend_pid(), reset_val::text FROM pg_settings WHERE name = 'search_path'

-- without a name
SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 0; SELECT set_config(name, wanted.value, true) FROM (VALUES ('search_path', 'pg_catalog, pg_temp'), ('lock_timeout', '20000'), ('statement_timeout', '30000'), ('idle_in_transaction_session_timeout', '600000'), ('idle_session_timeout', '0'), ('transaction_timeout', '0'), ('work_mem', '128MB'), ('enable_nestloop', 'off'), ('jit', 'off')) AS wanted (name, value) JOIN pg_settings USING (name) WHERE (name <> 'synchronous_commit' OR setting = 'off')

-- name: add_exhausted
-- $1 int2, $2 int2, $3 uuid
UPDATE "public"."duesweep_sweeps" SET exhausted = exhausted + $1, over_limit = over_limit + $2
WHERE sweep_id = $3;

-- name: await_batches
-- $1 uuid
SELECT true AS are_over FROM "public"."duesweep_sweeps" WHERE sweep_id = $1 AND closed_at IS NULL FOR UPDATE;

-- name: bind
-- $1 ?, $2 ?, $3 uuid
INSERT INTO "public"."duesweep_bindings" AS bound (source, delayed, ledger_id) VALUES ($1, $2, $3)
ON CONFLICT (source) DO UPDATE SET ledger_id = excluded.ledger_id
WHERE bound.ledger_id = '<uuid>';

-- name: changes_pieces
-- $1 int4, $2 uuid
SELECT min(m.id) AS first_id, max(m.id) AS last_id
FROM (
    SELECT s.id, div(sum(s.bytes) OVER (ORDER BY s.id) - s.bytes, $1::bigint) AS piece
    FROM (
        SELECT c.id,
               1000 + 2 * coalesce(octet_length(c.headers), 0)::bigint + coalesce(octet_length(c.body), 0) AS bytes
        FROM "public"."duesweep_changes" c
        WHERE c.sweep_id = $2
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: check_constraints_at_once
SET CONSTRAINTS ALL IMMEDIATE;

-- name: claim
-- $1 ?, $2 timestamptz, $3 uuid[], $4 timestamptz
SELECT d.id::text AS message_key, d.headers AS headers, d.body AS body, NULL AS destination,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM d.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM CASE
           WHEN d.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN d.due
           ELSE least(
               (d.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC', $2::timestamptz
           )
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales.Orders.Delayed" d
WHERE d.id = ANY($3::uuid[]) AND (d.due < $4::timestamptz) IS TRUE
FOR UPDATE OF d SKIP LOCKED;

-- name: clear_attempts
-- $1 ?, $2 uuid[]
DELETE FROM "public"."duesweep_attempts" WHERE source = $1 AND message_key = ANY($2::uuid[]);

-- name: close_sweep
-- $1 bool, $2 int2, $3 ?, $4 uuid
UPDATE "public"."duesweep_sweeps"
SET closed_at = clock_timestamp(), abandoned = $1, remaining = $2, reason = $3
WHERE sweep_id = $4;

-- name: count_buckets
-- $1 ?, $2 timestamptz[]
SELECT coalesce(width_bucket(d.due, b.dues), cardinality(b.dues)) AS bucket, count(*) AS messages
FROM "public"."Sales.Orders.Delayed" d
CROSS JOIN (
    SELECT ARRAY(
        SELECT ((e.instant AT TIME ZONE 'UTC') AT TIME ZONE $1::text)
        FROM unnest($2::timestamptz[]) AS e (instant)
        ORDER BY e.instant
    ) AS dues
) b
GROUP BY 1;

-- name: count_pending
-- $1 timestamptz, $2 ?, $3 ?, $4 ?, $5 int4
SELECT count(*) AS pending
FROM (
    SELECT
    FROM "public"."Sales.Orders.Delayed" d
    WHERE d.due < $1::timestamptz AND d.due >= coalesce($2::timestamptz, '-infinity')
      AND ($3::text = '[]' OR NOT coalesce(substring(substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299) from nullif(position('"NServiceBus.SqlServer.ForwardDestination":"'::bytea in substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299)), 0) + 44), '') LIKE ANY (ARRAY(
        SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($3::jsonb) p
      )))
      AND NOT EXISTS (
        SELECT FROM "public"."duesweep_attempts" a
        WHERE a.source = $4 AND a.message_key = d.id AND a.next_attempt_at > statement_timestamp()
      )
    LIMIT $5
) eligible;

-- name: count_present
-- $1 uuid[]
SELECT count(*) AS present FROM "public"."Sales.Orders.Delayed" d WHERE d.id = ANY($1::uuid[]);

-- name: create_delayed
CREATE TABLE IF NOT EXISTS "public"."Sales.Orders.Delayed" (
    id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    headers text NOT NULL,
    body bytea,
    due timestamptz NOT NULL
) WITH (fillfactor=100);
CREATE INDEX IF NOT EXISTS "Sales.Orders.Delayed_Due" ON "public"."Sales.Orders.Delayed" (due);

-- name: create_journal
CREATE TABLE IF NOT EXISTS "public"."duesweep_bindings" (
    source text PRIMARY KEY,
    delayed text NOT NULL,
    ledger_id uuid NOT NULL,
    bound_at timestamptz NOT NULL DEFAULT now(),
    journal_id uuid,
    settled_sweep uuid,
    settled_at timestamptz,
    place text
);
CREATE TABLE IF NOT EXISTS "public"."duesweep_sweeps" (
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
    command text,
    given_by text,
    given_reason text
);
CREATE INDEX IF NOT EXISTS duesweep_sweeps_source ON "public"."duesweep_sweeps" (source);
CREATE TABLE IF NOT EXISTS "public"."duesweep_journal" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id uuid NOT NULL,
    slice integer NOT NULL,
    kind text NOT NULL CHECK (kind IN ('batch', 'exhausted', 'slice')),
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    dispatched integer,
    failed integer,
    body_bytes bigint,
    attempts_changed boolean,
    lateness_ms bigint[],
    outcomes bytea,
    given bigint,
    claimed bigint,
    skipped bigint,
    gone bigint,
    later bigint,
    held bigint,
    "left" bigint,
    reason text,
    breakers text,
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
CREATE INDEX IF NOT EXISTS duesweep_journal_sweep ON "public"."duesweep_journal" (sweep_id, kind);
CREATE TABLE IF NOT EXISTS "public"."duesweep_attempts" (
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
CREATE TABLE IF NOT EXISTS "public"."duesweep_changes" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sweep_id uuid NOT NULL REFERENCES "public"."duesweep_sweeps",
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
    headers text,
    body bytea
);
CREATE INDEX IF NOT EXISTS duesweep_changes_sweep ON "public"."duesweep_changes" (sweep_id);
CREATE TABLE IF NOT EXISTS "public"."duesweep_pauses" (
    source text NOT NULL,
    pattern text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until_at timestamptz,
    given_by text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (source, pattern)
);
CREATE TABLE IF NOT EXISTS "public"."duesweep_limits" (
    source text NOT NULL,
    pattern text NOT NULL,
    free_at timestamptz NOT NULL,
    PRIMARY KEY (source, pattern)
);
CREATE TABLE IF NOT EXISTS "public"."duesweep_leases" (
    name text PRIMARY KEY,
    holder uuid NOT NULL,
    process text NOT NULL,
    mark text NOT NULL,
    taken_at timestamptz NOT NULL,
    until_at timestamptz NOT NULL
);
ALTER TABLE "public"."duesweep_bindings" ADD COLUMN IF NOT EXISTS journal_id uuid,
    ADD COLUMN IF NOT EXISTS settled_sweep uuid, ADD COLUMN IF NOT EXISTS settled_at timestamptz,
    ADD COLUMN IF NOT EXISTS place text;
ALTER TABLE "public"."duesweep_journal" ALTER COLUMN outcomes SET STORAGE EXTERNAL;
ALTER TABLE "public"."duesweep_journal" ALTER COLUMN lateness_ms SET STORAGE EXTERNAL;
DO 'BEGIN IF coalesce(obj_description(''"public"."duesweep_journal"''::regclass, ''pg_class''), '''') IN ('''', ''duesweep format 1 (0.1.0 or newer)'') THEN COMMENT ON TABLE "public"."duesweep_journal" IS ''duesweep format 2 (0.1.0 or newer)''; END IF; END';

-- name: create_queue
DO $$BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('duesweep/create', 0)); END$$;
CREATE TABLE IF NOT EXISTS "public"."Own" (
    id uuid NOT NULL PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq serial NOT NULL UNIQUE
);

-- name: create_queue with add_body_string
DO $$BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('duesweep/create', 0)); END$$;
CREATE TABLE IF NOT EXISTS "public"."Sales.Orders" (
    id uuid NOT NULL PRIMARY KEY,
    expires timestamp,
    headers text NOT NULL,
    body bytea,
    seq serial NOT NULL UNIQUE
);
ALTER TABLE "public"."Sales.Orders" ADD COLUMN IF NOT EXISTS bodystring text
    GENERATED ALWAYS AS (encode(body, 'escape')) STORED;

-- name: create_subscriptions
DO $$BEGIN PERFORM pg_advisory_xact_lock(hashtextextended('duesweep/create', 0)); END$$;
CREATE TABLE IF NOT EXISTS "public"."SubscriptionRouting" (
    queueaddress varchar(200) NOT NULL,
    endpoint varchar(200) NOT NULL,
    topic varchar(200) NOT NULL,
    PRIMARY KEY (endpoint, topic)
) WITH (fillfactor=100);

-- name: delete_changes
-- $1 uuid
DELETE FROM "public"."duesweep_changes"
WHERE id IN (SELECT id FROM "public"."duesweep_changes" WHERE sweep_id = $1 LIMIT 500);

-- name: delete_settled
-- $1 uuid
DELETE FROM "public"."duesweep_journal"
WHERE id IN (SELECT id FROM "public"."duesweep_journal" WHERE sweep_id = $1 LIMIT 500);

-- name: delete_sweep
-- $1 ?, $2 uuid
WITH ended AS (DELETE FROM "public"."duesweep_leases" WHERE name = $1)
DELETE FROM "public"."duesweep_sweeps" WHERE sweep_id = $2;

-- name: describe_indexes
-- $1 ?, $2 ?
SELECT a.attname AS column_name, i.indpred IS NOT NULL AS is_partial
FROM pg_index i
JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
JOIN pg_class x ON x.oid = i.indexrelid
JOIN pg_am m ON m.oid = x.relam
WHERE n.nspname = $1::text AND c.relname = $2::text AND i.indisvalid AND m.amname = 'btree';

-- name: describe_schema
-- $1 ?
SELECT has_schema_privilege(oid, 'USAGE') AND has_schema_privilege(oid, 'CREATE') AS may_create
FROM pg_namespace
WHERE nspname = $1::text;

-- name: describe_session
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::integer AS version_number, pg_is_in_recovery() AS is_replica,
       current_setting('transaction_read_only') = 'on' AS is_read_only,
       current_setting('server_encoding') AS encoding, current_setting('fsync') = 'on' AS is_synced;

-- name: describe_tables
-- $1 ?, $2 ?, $3 ?
SELECT n.nspname AS schema, c.relname AS table, c.relkind::text AS kind, obj_description(c.oid, 'pg_class') AS mark,
       EXISTS (SELECT FROM (SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) AS part (oid) JOIN pg_class p ON p.oid = part.oid WHERE p.relpersistence = 'u') AS is_unlogged,
       c.relhasrules OR c.relrowsecurity AS has_rules, current_user::text AS role,
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
           FROM (SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) AS part (oid) JOIN pg_class p ON p.oid = part.oid
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
           FROM (SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) AS part (oid) JOIN pg_class p ON p.oid = part.oid
           JOIN pg_trigger g ON g.tgrelid = p.oid
           CROSS JOIN unnest(asked.rights) AS event (name)
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
           SELECT DISTINCT s.seqrelid::regclass::text
           FROM pg_attrdef a
           JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid
               AND d.refclassid = 'pg_class'::regclass
           JOIN pg_sequence s ON s.seqrelid = d.refobjid
           WHERE 'INSERT' = ANY(asked.rights) AND a.adrelid = c.oid
             AND NOT has_sequence_privilege(s.seqrelid, 'USAGE, UPDATE')
       ) AS missing_sequences
FROM (
    SELECT t.schema, t.name, string_to_array(t.rights, ',') AS rights
    FROM unnest($1::text[], $2::text[], $3::text[]) AS t (schema, name, rights)
) asked
JOIN pg_namespace n ON n.nspname = asked.schema
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = asked.name;

-- name: doctor_clock
SELECT clock_timestamp() AS now;

-- name: doctor_references
-- $1 ?, $2 ?
SELECT f.conname AS name, f.conrelid::regclass::text AS table
FROM pg_constraint f
JOIN pg_class c ON c.oid = f.confrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text AND f.contype = 'f' AND f.confdeltype IN ('a', 'r')
ORDER BY f.conname;

-- name: doctor_sequences
-- $1 ?, $2 ?
WITH queue_tables AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS table
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'p')
    GROUP BY c.oid, n.nspname, c.relname
    HAVING array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) @> $1::text[]
       AND array_agg(a.attname::text) @> $2::text[]
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
-- $1 int2
SELECT d.headers AS headers, NULL AS destination
FROM "public"."Sales.Orders.Delayed" d
WHERE d.due IS NOT NULL
ORDER BY d.due
LIMIT $1::integer;

-- name: doctor_zone
-- $1 ?
SELECT max(minutes) - min(minutes) AS minutes
FROM (
    SELECT (EXTRACT(EPOCH FROM (moment AT TIME ZONE $1) - (moment AT TIME ZONE 'UTC')) / 60)::integer AS minutes
    FROM generate_series(now(), now() + interval '1 year', interval '1 month') AS moment
) AS offsets;

-- name: drop_old_pauses
-- $1 ?
DELETE FROM "public"."duesweep_pauses" WHERE source = $1 AND until_at <= clock_timestamp();

-- name: dropped_sources
SELECT b.source, b.delayed, (SELECT count(*) FROM "public"."duesweep_sweeps" s WHERE s.source = b.source) AS unsettled
FROM "public"."duesweep_bindings" b
WHERE to_regclass(b.delayed) IS NULL
ORDER BY b.source;

-- name: estimate_rows
-- $1 ?, $2 ?
WITH RECURSIVE parts (oid) AS (
    SELECT t.oid
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = $1::text AND t.relname = $2::text
    UNION ALL
    SELECT i.inhrelid FROM parts p JOIN pg_inherits i ON i.inhparent = p.oid
)
SELECT coalesce(sum(greatest(c.reltuples, pg_relation_size(c.oid) / 2000)), 0)::bigint AS rows
FROM parts p JOIN pg_class c ON c.oid = p.oid;

-- name: exhausted_pieces
-- $1 int4, $2 uuid
SELECT min(m.id) AS first_id, max(m.id) AS last_id
FROM (
    SELECT s.id, div(sum(s.bytes) OVER (ORDER BY s.id) - s.bytes, $1::bigint) AS piece
    FROM (
        SELECT j.id, 1000 + 2 * coalesce(octet_length(j.headers), 0)::bigint + coalesce(octet_length(j.body), 0)
                   + coalesce(octet_length(j.error_text), 0) + coalesce(octet_length(j.stack), 0) AS bytes
        FROM "public"."duesweep_journal" j
        WHERE j.sweep_id = $2 AND j.kind = 'exhausted'
    ) s
) m
GROUP BY m.piece
ORDER BY m.piece;

-- name: explain_unclaimed
-- $1 timestamptz, $2 uuid[]
SELECT count(*) FILTER (WHERE is_due) AS skipped, count(*) FILTER (WHERE NOT is_due) AS later
FROM (
    SELECT (d.due < $1::timestamptz) IS TRUE AS is_due
    FROM "public"."Sales.Orders.Delayed" d
    WHERE d.id = ANY($2::uuid[])
) AS unclaimed;

-- name: failure_reasons
-- $1 uuid, $2 int2
SELECT f.reason, count(*) AS messages, min(f.destination) AS destination
FROM (
    SELECT left(j.error_text, 500) AS reason, j.destination
    FROM "public"."duesweep_journal" j
    WHERE j.sweep_id = $1 AND j.kind = 'exhausted'
    UNION ALL
    SELECT left(a.error_text, 500), a.destination
    FROM "public"."duesweep_sweeps" s
    JOIN "public"."duesweep_attempts" a ON a.source = s.source AND a.last_failed_at BETWEEN s.started_at AND s.closed_at
    WHERE s.sweep_id = $1
) f
GROUP BY f.reason
ORDER BY messages DESC, f.reason
LIMIT $2::integer;

-- name: fence
-- $1 uuid
SELECT closed_at IS NULL AS is_open,
       coalesce(stop_at <= clock_timestamp(), false) AS is_stopping,
       EXISTS (SELECT FROM "public"."duesweep_pauses" p WHERE p.source = s.source) AS has_pauses,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS server_us
FROM "public"."duesweep_sweeps" s
WHERE sweep_id = $1
FOR KEY SHARE OF s;

-- name: fetch_next_due
-- $1 ?, $2 timestamptz, $3 timestamptz, $4 ?
SELECT d.id::text AS message_key, d.headers AS headers, d.body AS body, NULL AS destination,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM d.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM CASE
           WHEN d.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN d.due
           ELSE least(
               (d.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC', $2::timestamptz
           )
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales.Orders.Delayed" d
WHERE d.due < $3::timestamptz
  AND NOT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $4 AND a.message_key = d.id AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d.due
LIMIT 1
FOR UPDATE OF d SKIP LOCKED;

-- name: find
-- $1 bool, $2 ?, $3 uuid[]
SELECT d.id::text AS message_key, d.headers AS headers, CASE WHEN $1 THEN d.body END AS body,
       NULL AS destination, coalesce(octet_length(d.body), 0) AS body_bytes,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM i.instant) * 1000000)::bigint END AS instant_us
FROM "public"."Sales.Orders.Delayed" d
CROSS JOIN LATERAL (SELECT least(d.due, '290000-01-01 00:00:00+00'::timestamptz) AS due) c
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
        ELSE (c.due AT TIME ZONE $2::text) AT TIME ZONE 'UTC'
    END AS instant
) i
WHERE d.id = ANY($3::uuid[]);

-- name: find_delete_hooks
-- $1 ?
WITH RECURSIVE parts (relid) AS (
    SELECT $1::regclass::oid
    UNION ALL
    SELECT i.inhrelid FROM parts p JOIN pg_inherits i ON i.inhparent = p.relid
)
SELECT EXISTS (
    SELECT FROM parts p
    WHERE EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = p.relid AND r.ev_type = '4')
       OR EXISTS (
        SELECT FROM pg_trigger g
        WHERE g.tgrelid = p.relid AND g.tgtype & 11 = 11 AND g.tgenabled <> 'D'
      )
) AS found, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS server_us;

-- name: find_gone_attempts
-- $1 ?
SELECT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $1 AND NOT EXISTS (SELECT FROM "public"."Sales.Orders.Delayed" d WHERE d.id = a.message_key)
) AS found;

-- name: find_pending
-- $1 timestamptz, $2 ?, $3 ?, $4 ?
SELECT CASE WHEN d.due >= timestamptz '0001-01-02 00:00:00+00' THEN d.due END AS due
FROM "public"."Sales.Orders.Delayed" d
WHERE d.due < $1::timestamptz AND d.due >= coalesce($2::timestamptz, '-infinity')
  AND ($3::text = '[]' OR NOT coalesce(substring(substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299) from nullif(position('"NServiceBus.SqlServer.ForwardDestination":"'::bytea in substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299)), 0) + 44), '') LIKE ANY (ARRAY(
    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text($3::jsonb) p
  )))
  AND NOT EXISTS (
    SELECT FROM "public"."duesweep_attempts" a
    WHERE a.source = $4 AND a.message_key = d.id AND a.next_attempt_at > clock_timestamp()
  )
ORDER BY d.due
LIMIT 1;

-- name: forget_attempts
-- $1 ?
DELETE FROM "public"."duesweep_attempts" WHERE source = $1;

-- name: forget_limits
-- $1 ?
DELETE FROM "public"."duesweep_limits" WHERE source = $1;

-- name: forget_pauses
-- $1 ?
DELETE FROM "public"."duesweep_pauses" WHERE source = $1;

-- name: free
-- $1 ?
UPDATE "public"."duesweep_bindings"
SET ledger_id = '<uuid>', settled_sweep = NULL, settled_at = NULL
WHERE source = $1;

-- name: give_lease_back
-- $1 ?, $2 uuid
DELETE FROM "public"."duesweep_leases" USING (SELECT set_config('synchronous_commit', 'off', true)) AS quick (setting)
WHERE quick.setting = 'off'
  AND (name = $1 AND holder = $2 OR until_at < clock_timestamp() - interval '1 day');

-- name: gone_counters
-- $1 ?, $2 int2 or int4
SELECT a.message_key::text AS message_key
FROM "public"."duesweep_attempts" a
WHERE a.source = $1 AND NOT EXISTS (SELECT FROM "public"."Sales.Orders.Delayed" d WHERE d.id = a.message_key)
ORDER BY a.message_key
LIMIT $2;

-- name: hold
-- $1 ?, $2 uuid[]
SELECT d.id::text AS message_key, d.headers AS headers, d.body AS body, NULL AS destination,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM c.due) * 1000000)::bigint END AS due_us,
       CASE WHEN isfinite(d.due) THEN (extract(epoch FROM CASE
           WHEN c.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN c.due
           ELSE (c.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
       END) * 1000000)::bigint END AS instant_us
FROM "public"."Sales.Orders.Delayed" d
CROSS JOIN LATERAL (SELECT least(d.due, timestamptz '290000-01-01 00:00:00+00') AS due) c
WHERE d.id = ANY($2::uuid[])
FOR UPDATE OF d SKIP LOCKED;

-- name: horizon
SELECT timezone('UTC', now())::timestamptz AS horizon, now() AS server_time;

-- name: insert_messages
-- $1 uuid[], $2 ?, $3 bytea[]
INSERT INTO "public"."Sales.Orders" (id, headers, body)
SELECT m.id, m.headers, m.body
FROM unnest($1::uuid[], $2::text[], $3::bytea[]) AS m (id, headers, body);

-- name: journal_batch
-- $1 uuid, $2 int2, $3 int2, $4 int2, $5 int2, $6 bool, $7 ?, $8 ? or bytea
INSERT INTO "public"."duesweep_journal" (
    sweep_id, slice, kind, dispatched, failed, body_bytes, attempts_changed, lateness_ms, outcomes
) VALUES (
    $1, $2, 'batch', $3, $4, $5,
    $6, $7::bigint[], $8
);

-- name: journal_cancelled
-- $1 uuid, $2 int8, $3 ?, $4 ?, $5 ?, $6 ?, $7 int8[], $8 int2[]
INSERT INTO "public"."duesweep_changes" (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    attempts, body_bytes, headers, body
)
SELECT $1, 'cancelled', $2, d.id::text, c.message_id, c.message_type, c.destination,
       CASE d.due WHEN 'infinity' THEN (extract(epoch FROM timestamptz '290000-01-01 00:00:00+00') * 1000000)::bigint
           WHEN '-infinity' THEN (extract(epoch FROM timestamptz '4713-01-01 00:00:00+00 BC') * 1000000)::bigint
           ELSE c.due_before_us END,
       c.attempts, coalesce(octet_length(d.body), 0), d.headers, d.body
FROM unnest(
    $3::uuid[], $4::text[], $5::text[], $6::text[],
    $7::bigint[], $8::integer[]
) AS c (message_key, message_id, message_type, destination, due_before_us, attempts)
JOIN "public"."Sales.Orders.Delayed" d ON d.id = c.message_key;

-- name: journal_changes
-- $1 uuid, $2 int8, $3 ?, $4 ?, $5 ?, $6 ?, $7 ?, $8 ? or int8[], $9 int8[], $10 ?, $11 ?, $12 int2[], $13 int2[]
INSERT INTO "public"."duesweep_changes" (
    sweep_id, change, changed_us, message_key, message_id, message_type, destination, due_before_us,
    due_after_us, "of", new_key, attempts, body_bytes
)
SELECT $1, c.change, $2, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us, c.due_after_us, c.undone, c.new_key, c.attempts, c.body_bytes
FROM unnest(
    $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::bigint[], $9::bigint[],
    $10::text[], $11::text[], $12::integer[], $13::bigint[]
) AS c (
    change, message_key, message_id, message_type, destination, due_before_us, due_after_us, undone,
    new_key, attempts, body_bytes
);

-- name: journal_exhausted
-- $1 uuid, $2 int2, $3 ?, $4 int8[], $5 ?, $6 ?, $7 ?, $8 ?, $9 int2[], $10 ?, $11 ?, $12 ?, $13 int8, $14 ?
INSERT INTO "public"."duesweep_journal" (
    sweep_id, slice, kind, message_key, message_id, message_type, destination, queue, due,
    dispatched_at, attempts, first_failed_at, error_class, error_text, stack, headers, body
)
SELECT $1, $2, 'exhausted', d.id, e.message_id, e.message_type, e.destination, e.queue,
       timestamptz 'epoch' + (e.instant_us / 1000000) * interval '1 second'
           + mod(e.instant_us, 1000000) * interval '1 microsecond',
       w.dispatched_at, e.attempts,
       coalesce(a.first_failed_at, w.dispatched_at), e.error_class, e.error_text, e.stack,
       d.headers, d.body
FROM unnest(
    $3::uuid[], $4::bigint[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::integer[], $10::text[],
    $11::text[], $12::text[]
) AS e (
    message_key, instant_us, message_id, message_type, destination, queue, attempts, error_class, error_text,
    stack
)
CROSS JOIN (
    SELECT timestamptz 'epoch' + $13::bigint * interval '1 microsecond' AS dispatched_at
) w
JOIN "public"."Sales.Orders.Delayed" d ON d.id = e.message_key
LEFT JOIN "public"."duesweep_attempts" a ON a.source = $14 AND a.message_key = e.message_key;

-- name: journal_slice
-- $1 uuid, $2 int2, $3 int2, $4 int2, $5 int2, $6 int2, $7 int2, $8 int2, $9 int2, $10 ?, $11 ?, $12 ?
INSERT INTO "public"."duesweep_journal" (
    sweep_id, slice, kind, given, claimed, skipped, gone, later, held, "left", reason, breakers, error_text
) VALUES (
    $1, $2, 'slice', $3, $4, $5, $6, $7, $8, $9,
    $10, $11, $12
);

-- name: keep_place
-- $1 ?, $2 ?
UPDATE "public"."duesweep_bindings"
SET place = $1,
    settled_sweep = CASE WHEN place IS NOT NULL THEN settled_sweep END,
    settled_at = CASE WHEN place IS NOT NULL THEN settled_at END
WHERE source = $2;

-- name: lateness
-- $1 uuid
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY l.ms) AS p50,
       percentile_disc(0.95) WITHIN GROUP (ORDER BY l.ms) AS p95,
       max(l.ms) AS longest
FROM "public"."duesweep_journal" j CROSS JOIN LATERAL unnest(j.lateness_ms) AS l (ms)
WHERE j.sweep_id = $1;

-- name: list_subscribers
-- $1 ?
SELECT DISTINCT queueaddress AS queue_address FROM "public"."SubscriptionRouting" WHERE topic = $1;

-- name: lock_any
SELECT d.id::text AS id FROM "public"."Sales.Orders.Delayed" d LIMIT 1 FOR UPDATE OF d SKIP LOCKED;

-- name: lock_creation
-- $1 int8
SELECT pg_advisory_xact_lock($1);

-- name: lock_sweep_counters
-- $1 uuid
SELECT exhausted FROM "public"."duesweep_sweeps" WHERE sweep_id = $1 FOR NO KEY UPDATE;

-- name: locked_rows
-- $1 timestamptz
SELECT count(*) AS messages, min(d.due) AS due,
       CASE WHEN p.gid IS NULL
            THEN format('session %s%s of role %s', l.pid, ' (' || nullif(a.application_name, '') || ')', a.usename)
            ELSE format('prepared transaction %L of role %s', p.gid, p.owner)
       END AS holder,
       coalesce(a.xact_start, p.prepared) AS since
FROM (
    SELECT d.xmax AS changer, d.due AS due
    FROM "public"."Sales.Orders.Delayed" d
    WHERE d.due < $1::timestamptz
    ORDER BY d.due
    LIMIT 10000
) d
JOIN pg_locks l ON l.locktype = 'transactionid' AND l.transactionid = d.changer AND l.mode = 'ExclusiveLock'
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_prepared_xacts p ON p.transaction = l.transactionid AND l.pid IS NULL
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
GROUP BY l.pid, a.application_name, p.gid, a.usename, p.owner, a.xact_start, p.prepared
ORDER BY messages DESC;

-- name: move_from_places
-- $1 tid[], $2 timestamptz, $3 ?, $4 ?, $5 ?, $6 timestamptz, $7 bytea, $8 ?, $9 int8
WITH moved AS MATERIALIZED (
    DELETE FROM "public"."Sales.Orders.Delayed" d
    WHERE d.ctid = ANY($1::tid[]) AND (d.due < $2::timestamptz) IS TRUE
      AND coalesce(NULL, '') = $3::text
    RETURNING d.id AS id, d.body AS body, octet_length(d.headers) AS header_bytes,
        split_part(d.headers, $4::text, 1) AS headers,
        CASE WHEN isfinite(d.due) THEN (extract(epoch FROM CASE
            WHEN d.due < timestamptz '4713-01-01 00:00:00+00 BC' THEN d.due
            ELSE least(
                (d.due AT TIME ZONE $5::text) AT TIME ZONE 'UTC', $6::timestamptz
            )
        END) * 1000000)::bigint END AS instant_us
), arrived AS (
    INSERT INTO "public"."Billing" (id, headers, body)
    SELECT encode($7::bytea || int8send(uuid_hash_extended(m.id, 0)), 'hex')::uuid,
           m.headers || $8::text, m.body
    FROM moved m
    ORDER BY m.instant_us
    RETURNING 1
)
SELECT count(*) AS messages, (SELECT count(*) FROM arrived) AS arrived,
       bool_and(octet_length(m.headers) + octet_length($4::text) = m.header_bytes) AS have_one_destination,
       string_agg(m.id::text, ',') AS keys,
       string_agg(m.headers, E'\x1f') AS headers,
       string_agg(int8send(coalesce(m.instant_us, $9::bigint)), '') AS instants_us,
       string_agg(int8send(coalesce(octet_length(m.body), 0)), '') AS body_bytes
FROM moved m;

-- name: name_journal
-- $1 uuid, $2 ?
UPDATE "public"."duesweep_bindings" SET journal_id = $1 WHERE source = $2 AND journal_id IS NULL;

-- name: note_settled
-- $1 uuid
UPDATE "public"."duesweep_bindings" b
SET settled_sweep = s.sweep_id, settled_at = s.closed_at
FROM "public"."duesweep_sweeps" s
WHERE s.sweep_id = $1 AND b.source = s.source
  AND (b.settled_at IS NULL OR b.settled_at <= s.closed_at)
  AND (s.command IS NULL OR EXISTS (SELECT FROM "public"."duesweep_changes" c WHERE c.sweep_id = s.sweep_id));

-- name: open_command
-- $1 uuid, $2 ?, $3 timestamptz, $4 ?, $5 ?, $6 ?
INSERT INTO "public"."duesweep_sweeps" (sweep_id, source, horizon, command, given_by, given_reason)
VALUES (
    $1, $2, $3, $4, $5, $6
);

-- name: open_sweep
-- $1 uuid, $2 ?, $3 timestamptz, $4 ?, $5 bool
INSERT INTO "public"."duesweep_sweeps" (sweep_id, source, horizon, engine, attempts_changed)
VALUES ($1, $2, $3, $4, $5);

-- name: orphaned_journal
SELECT j.sweep_id
FROM (SELECT sweep_id FROM "public"."duesweep_journal" UNION SELECT sweep_id FROM "public"."duesweep_changes") j
WHERE NOT EXISTS (SELECT FROM "public"."duesweep_sweeps" s WHERE s.sweep_id = j.sweep_id)
ORDER BY j.sweep_id;

-- name: pause
-- $1 ?, $2 ?, $3 timestamptz, $4 ?, $5 ?
INSERT INTO "public"."duesweep_pauses" AS p (source, pattern, until_at, given_by, reason)
VALUES ($1, $2, $3::timestamptz, $4, $5)
ON CONFLICT (source, pattern) DO UPDATE SET
    paused_at = excluded.paused_at,
    until_at = excluded.until_at,
    given_by = excluded.given_by,
    reason = excluded.reason;

-- name: peek
-- $1 int2
SELECT least(coalesce(
    (SELECT seq FROM "public"."Own" ORDER BY seq DESC LIMIT 1 FOR KEY SHARE SKIP LOCKED)
    - (SELECT seq FROM "public"."Own" ORDER BY seq LIMIT 1 FOR KEY SHARE SKIP LOCKED) + 1, 0
), $1) AS messages;

-- name: postpone_attempts
-- $1 ?, $2 timestamptz[], $3 ?
UPDATE "public"."duesweep_attempts" a
SET next_attempt_at = n.due
FROM unnest($1::uuid[], $2::timestamptz[]) AS n (message_key, due)
WHERE a.source = $3 AND a.message_key = n.message_key;

-- name: progress
-- $1 uuid
SELECT count(*) FILTER (WHERE kind = 'batch') AS batches,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint + count(*) FILTER (WHERE kind = 'exhausted') AS failed
FROM "public"."duesweep_journal"
WHERE sweep_id = $1;

-- name: purge
-- $1 int2
DELETE FROM "public"."Own"
WHERE id = ANY(ARRAY(SELECT id FROM "public"."Own" ORDER BY seq LIMIT $1 FOR UPDATE SKIP LOCKED));

-- name: purge_expired
-- $1 int2
DELETE FROM "public"."Own"
WHERE id = ANY(ARRAY(
    SELECT id FROM "public"."Own" WHERE expires < now() AT TIME ZONE 'UTC'
    LIMIT $1 FOR UPDATE SKIP LOCKED
));

-- name: queue_tables
-- $1 ?, $2 ?
SELECT n.nspname AS schema, c.relname AS table, bool_or(c.relhasrules OR c.relrowsecurity) AS has_rules
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'p')
GROUP BY n.nspname, c.relname
HAVING array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) @> $1::text[]
   AND array_agg(a.attname::text) @> $2::text[];

-- name: raise_attempts
-- $1 ?, $2 ?, $3 ?, $4 ?, $5 float8[] or int2[], $6 ?, $7 ?
INSERT INTO "public"."duesweep_attempts" AS counted (
    source, message_key, message_id, destination, attempts,
    first_failed_at, last_failed_at, next_attempt_at, error_class, error_text
)
SELECT $1, f.message_key, f.message_id, f.destination, 1,
       statement_timestamp(), statement_timestamp(),
       statement_timestamp() + make_interval(secs => f.retry_seconds), f.error_class, f.error_text
FROM unnest(
    $2::uuid[], $3::text[], $4::text[],
    $5::float8[], $6::text[], $7::text[]
) AS f (message_key, message_id, destination, retry_seconds, error_class, error_text)
ON CONFLICT (source, message_key) DO UPDATE SET
    attempts = counted.attempts + 1,
    destination = excluded.destination,
    last_failed_at = excluded.last_failed_at,
    next_attempt_at = excluded.next_attempt_at,
    error_class = excluded.error_class,
    error_text = excluded.error_text;

-- name: read_attempts
-- $1 ?, $2 uuid[]
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM "public"."duesweep_attempts"
WHERE source = $1 AND message_key = ANY($2::uuid[]);

-- name: read_batches
-- $1 uuid, $2 int2, $3 int4
SELECT id, outcomes
FROM "public"."duesweep_journal"
WHERE sweep_id = $1 AND kind = 'batch' AND outcomes IS NOT NULL AND id > $2
ORDER BY id
LIMIT (
    SELECT greatest(1, $3 / greatest(1, max(dispatched)))
    FROM "public"."duesweep_journal"
    WHERE sweep_id = $1 AND kind = 'batch'
);

-- name: read_binding
-- $1 ?
SELECT found.*
FROM (
    SELECT NULL::uuid AS journal_id, NULL::uuid AS settled_sweep, NULL::timestamptz AS settled_at, NULL::text AS place
) lacking
CROSS JOIN LATERAL (
    SELECT delayed, ledger_id, bound_at, journal_id, settled_sweep, settled_at, place
    FROM "public"."duesweep_bindings"
    WHERE source = $1
) found;

-- name: read_changes
-- $1 uuid, $2 int2, $3 int2
SELECT c.id, c.sweep_id::text AS sweep_id, s.command, c.change, c.changed_us AS changed_at, s.given_by,
       s.given_reason AS reason, c.message_key, c.message_id, c.message_type, c.destination,
       c.due_before_us AS due_before, c.due_after_us AS due_after, c.queue, c."of", c.new_key, c.attempts,
       c.headers AS headers, c.headers AS headers_text, c.body, c.body_bytes
FROM "public"."duesweep_changes" c
JOIN "public"."duesweep_sweeps" s ON s.sweep_id = c.sweep_id
WHERE c.sweep_id = $1 AND c.id BETWEEN $2 AND $3
ORDER BY c.id;

-- name: read_command
-- $1 uuid
SELECT s.command, s.given_by, s.given_reason, EXISTS (
    SELECT FROM "public"."duesweep_changes" c
    WHERE c.sweep_id = s.sweep_id AND c.attempts > 0 AND c.change IN ('cancelled', 'rescheduled')
) AS attempts_changed
FROM "public"."duesweep_sweeps" s
WHERE s.sweep_id = $1 AND s.command IS NOT NULL;

-- name: read_exhausted
-- $1 uuid, $2 int2, $3 int2
SELECT j.id, j.sweep_id::text AS sweep_id, j.message_key::text AS message_key, j.message_id,
       j.message_type, j.destination, j.queue,
       (extract(epoch FROM j.due) * 1000000)::bigint AS due,
       (extract(epoch FROM j.dispatched_at) * 1000000)::bigint AS dispatched_at,
       floor((extract(epoch FROM j.dispatched_at) - extract(epoch FROM j.due)) * 1000)::bigint AS lateness_ms,
       j.attempts, coalesce(octet_length(j.body), 0)::bigint AS body_bytes,
       (extract(epoch FROM j.first_failed_at) * 1000000)::bigint AS first_failed_at,
       (extract(epoch FROM j.dispatched_at) * 1000000)::bigint AS last_failed_at,
       j.error_class, j.error_text, j.stack, j.headers AS headers,
       j.headers AS headers_text, j.body
FROM "public"."duesweep_journal" j
WHERE j.sweep_id = $1 AND j.kind = 'exhausted' AND j.id BETWEEN $2 AND $3
ORDER BY j.id;

-- name: read_failures
-- $1 ?, $2 uuid[]
SELECT message_key::text AS message_key, attempts, next_attempt_at, error_text
FROM "public"."duesweep_attempts"
WHERE source = $1 AND message_key = ANY($2::uuid[]);

-- name: read_instants
-- $1 ?, $2 uuid[]
SELECT d.id::text AS message_key,
       (extract(epoch FROM (d.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC') * 1000000)::bigint
           AS instant_us
FROM "public"."Sales.Orders.Delayed" d
WHERE d.id = ANY($2::uuid[]);

-- name: read_pauses
-- $1 ?
SELECT pattern, paused_at, until_at, given_by, reason
FROM "public"."duesweep_pauses"
WHERE source = $1 AND (until_at IS NULL OR until_at > clock_timestamp())
ORDER BY pattern;

-- name: read_retries
-- $1 ?, $2 ?, $3 int2
SELECT a.message_key::text AS message_key, message_id, destination, attempts,
       (extract(epoch FROM first_failed_at) * 1000000)::bigint AS first_failed_at,
       (extract(epoch FROM last_failed_at) * 1000000)::bigint AS last_failed_at,
       (extract(epoch FROM next_attempt_at) * 1000000)::bigint AS next_attempt_at,
       error_class, error_text
FROM "public"."duesweep_attempts" a
WHERE a.source = $1 AND ($2::uuid IS NULL OR a.message_key > $2::uuid)
ORDER BY a.message_key
LIMIT $3;

-- name: read_slice with plan_claim_keys
SELECT claim_keys, sizes, total, forwards FROM (
SELECT s.slice, chunk.claim_keys, chunk.sizes, chunk.total, chunk.forwards, chunk.chunk
FROM (VALUES (0, '<instant>'::timestamptz, '(0,0)'::tid, 'infinity'::timestamptz, '(4294967295,65535)'::tid, false)) AS s (slice, first_due, first_place, end_due, end_place, by_place)
LEFT JOIN LATERAL (
    SELECT string_agg(k.id::text || CASE WHEN k.is_part THEN '' ELSE encode(tidsend(k.place), 'hex') END,
                      ',' ORDER BY k.position) AS claim_keys,
           string_agg(k.bytes::text, ',' ORDER BY k.position) AS sizes,
           string_agg(replace(CASE
    WHEN k.forward = '' OR (octet_length(k.forward) <= 300 AND split_part(k.forward, '",', 2) = '') THEN k.forward
    ELSE '?'
END, E'\x1f', ''), E'\x1f' ORDER BY k.position) AS forwards,
           (sum(count(*)) OVER ())::bigint AS total,
           k.position / '1000'::bigint AS chunk
    FROM (
        SELECT pending.*,
               row_number() OVER (ORDER BY pending.due, pending.place) - 1 AS position
        FROM (
            SELECT planned.*
            FROM (
                SELECT d.due AS due, d.ctid AS place, d.id AS id, coalesce(
    nullif(split_part(d.headers, ',"NServiceBus.SqlServer.ForwardDestination":"', 2), ''),
    CASE WHEN position('"NServiceBus.SqlServer.ForwardDestination"' in d.headers) > 0 THEN
        substring(right(split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 1), 40) from E',[ \t\r\n]*$')
        || '"NServiceBus.SqlServer.ForwardDestination"'
        || split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 2)
    END,
    ''
) AS forward,
                       d.tableoid IN (SELECT inhrelid FROM pg_inherits) AS is_part,
                       coalesce(octet_length(d.headers), 0)::bigint + coalesce(octet_length(d.body), 0) AS bytes
                FROM "public"."Sales.Orders.Delayed" d
                WHERE NOT s.by_place AND d.due < '<instant>'::timestamptz
                  AND (d.due, d.ctid) >= (s.first_due, s.first_place)
                  AND (d.due, d.ctid) < (s.end_due, s.end_place)
                  AND ( E'["Shipping\\"%", "\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "\\\\\\\\\\"public\\\\\\\\\\".\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "Shipping@%"]'::text = '[]' OR NOT coalesce(substring(substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299) from nullif(position('"NServiceBus.SqlServer.ForwardDestination":"'::bytea in substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299)), 0) + 44), '') LIKE ANY (ARRAY(
                    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text( E'["Shipping\\"%", "\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "\\\\\\\\\\"public\\\\\\\\\\".\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "Shipping@%"]'::jsonb) p
                  )))
                UNION ALL
                SELECT d.due AS due, d.ctid AS place, d.id AS id, coalesce(
    nullif(split_part(d.headers, ',"NServiceBus.SqlServer.ForwardDestination":"', 2), ''),
    CASE WHEN position('"NServiceBus.SqlServer.ForwardDestination"' in d.headers) > 0 THEN
        substring(right(split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 1), 40) from E',[ \t\r\n]*$')
        || '"NServiceBus.SqlServer.ForwardDestination"'
        || split_part(d.headers, '"NServiceBus.SqlServer.ForwardDestination"', 2)
    END,
    ''
) AS forward,
                       d.tableoid IN (SELECT inhrelid FROM pg_inherits) AS is_part,
                       coalesce(octet_length(d.headers), 0)::bigint + coalesce(octet_length(d.body), 0) AS bytes
                FROM "public"."Sales.Orders.Delayed" d
                WHERE s.by_place AND d.due IS NOT DISTINCT FROM s.first_due
                  AND d.ctid >= s.first_place AND d.ctid < s.end_place
                  AND ( E'["Shipping\\"%", "\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "\\\\\\\\\\"public\\\\\\\\\\".\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "Shipping@%"]'::text = '[]' OR NOT coalesce(substring(substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299) from nullif(position('"NServiceBus.SqlServer.ForwardDestination":"'::bytea in substring(convert_to(d.headers, getdatabaseencoding()) from octet_length(d.headers) - 299)), 0) + 44), '') LIKE ANY (ARRAY(
                    SELECT convert_to(p, getdatabaseencoding()) FROM jsonb_array_elements_text( E'["Shipping\\"%", "\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "\\\\\\\\\\"public\\\\\\\\\\".\\\\\\\\\\"Shipping\\\\\\\\\\"\\"%", "Shipping@%"]'::jsonb) p
                  )))
            ) planned
            WHERE NOT EXISTS (
                SELECT FROM "public"."duesweep_attempts" a
                WHERE a.source = 'nsb/Sales.Orders.Delayed' AND a.message_key = planned.id
                  AND a.next_attempt_at > statement_timestamp()
            )
            LIMIT '2000000'::bigint
        ) pending
    ) k
    GROUP BY k.position / '1000'::bigint
) chunk ON true
) AS due_messages WHERE slice = 0 ORDER BY chunk;

-- name: read_slice_ends
-- $1 uuid
SELECT slice, given, claimed, skipped, gone, later, held, "left", reason, breakers,
       error_text AS careful_batches
FROM "public"."duesweep_journal"
WHERE sweep_id = $1 AND kind = 'slice'
ORDER BY id;

-- name: read_some_attempts
-- $1 ?, $2 int2
SELECT message_key::text AS message_key, attempts, next_attempt_at <= clock_timestamp() AS is_eligible
FROM "public"."duesweep_attempts"
WHERE source = $1
LIMIT $2;

-- name: read_sweep
-- $1 uuid
SELECT sweep_id, source, started_at, closed_at, horizon, planned, over_limit, attempts_changed, abandoned,
       remaining, reason, engine, stop_at
FROM "public"."duesweep_sweeps"
WHERE sweep_id = $1;

-- name: receive
DELETE FROM "public"."Own"
WHERE id = (SELECT id FROM "public"."Own" ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, headers, body, expires, now() AT TIME ZONE 'UTC' AS utc_now;

-- name: remove
-- $1 uuid[]
DELETE FROM "public"."Sales.Orders.Delayed" WHERE id = ANY($1::uuid[]);

-- name: reschedule
-- $1 ?, $2 uuid[], $3 timestamptz[]
UPDATE "public"."Sales.Orders.Delayed" d
SET due = ((n.due AT TIME ZONE 'UTC') AT TIME ZONE $1::text)
FROM unnest($2::uuid[], $3::timestamptz[]) AS n (message_key, due)
WHERE d.id = n.message_key
RETURNING d.id::text AS message_key,
          (extract(epoch FROM (d.due AT TIME ZONE $1::text) AT TIME ZONE 'UTC') * 1000000)::bigint
              AS instant_us;

-- name: reserve
-- $1 ?, $2 ?, $3 float8
INSERT INTO "public"."duesweep_limits" AS l (source, pattern, free_at)
VALUES (
    $1, $2, clock_timestamp() + $3::float8 * interval '1 second'
)
ON CONFLICT (source, pattern) DO UPDATE SET
    free_at = greatest(
        clock_timestamp(),
        least(l.free_at, clock_timestamp() + greatest(10, 100 * $3::float8) * interval '1 second')
    ) + $3::float8 * interval '1 second'
RETURNING greatest(
    0, extract(epoch FROM free_at - clock_timestamp())::float8 - $3::float8
) AS wait_seconds;

-- name: resume
-- $1 ?, $2 ?
DELETE FROM "public"."duesweep_pauses" WHERE source = $1 AND pattern = $2;

-- name: seal
-- $1 uuid
UPDATE "public"."duesweep_sweeps"
SET sealed_at = clock_timestamp()
WHERE sweep_id = $1 AND sealed_at IS NULL AND closed_at IS NOT NULL;

-- name: send
-- $1 uuid, $2 ?, $3 ?, $4 ?, $5 bytea
INSERT INTO "public"."Own" (id, expires, headers, body)
VALUES (
    $1,
    now() AT TIME ZONE 'UTC'
        + make_interval(secs => $2::int + $3::int / 1000.0),
    $4, $5
);

-- name: send_later
-- $1 ?, $2 bytea, $3 int2, $4 int2, $5 int2, $6 int2, $7 int2
INSERT INTO "public"."Sales.Orders.Delayed" (headers, body, due)
VALUES (
    $1, $2,
    timestamptz (now() AT TIME ZONE 'UTC') + make_interval(
        days => $3, hours => $4, mins => $5,
        secs => $6 + $7 / 1000.0
    )
);

-- name: server_identity
SELECT s.system_identifier::text || '/' || d.oid::text AS identity
FROM pg_control_system() s, pg_database d
WHERE d.datname = current_database();

-- name: session_zone
SELECT setting AS zone, source FROM pg_settings WHERE name = 'TimeZone';

-- name: set_first_rows_fast
SELECT set_config('cursor_tuple_fraction', '0.00001', true) AS fraction;

-- name: set_lock_wait
-- $1 ?
SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true) AS after;

-- name: set_planned
-- $1 int2[], $2 timestamptz, $3 uuid
UPDATE "public"."duesweep_sweeps" SET planned = $1, horizon = $2
WHERE sweep_id = $3 AND closed_at IS NULL;

-- name: set_zone
-- $1 ?
SELECT set_config('TimeZone', $1, true) AS zone;

-- name: similar_tables
-- $1 ?
SELECT n.nspname AS schema, c.relname AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND right(c.relname, length($1)) = $1::text
ORDER BY n.nspname, c.relname
LIMIT 1000;

-- name: stop_sweep
-- $1 int2, $2 uuid
UPDATE "public"."duesweep_sweeps"
SET stop_at = least(stop_at, clock_timestamp() + $1::float8 * interval '1 millisecond')
WHERE sweep_id = $2 AND closed_at IS NULL;

-- name: store_message
-- $1 ?, $2 bytea, $3 timestamptz
INSERT INTO "public"."Sales.Orders.Delayed" (headers, body, due)
VALUES ($1, $2, timestamptz ($3::timestamptz AT TIME ZONE 'UTC'))
RETURNING id::text AS message_key;

-- name: subscribe
-- $1 ?, $2 ?, $3 ?
INSERT INTO "public"."SubscriptionRouting" (queueaddress, endpoint, topic)
VALUES ($1, $2, $3)
ON CONFLICT (endpoint, topic) DO UPDATE SET queueaddress = excluded.queueaddress;

-- name: take_lease
-- $1 ?, $2 uuid, $3 ?, $4 ?, $5 int2, $6 uuid
INSERT INTO "public"."duesweep_leases" AS l (name, holder, process, mark, taken_at, until_at)
SELECT $1, $2, $3, $4, clock_timestamp(), clock_timestamp() + $5::float8 * interval '1 millisecond'
FROM (SELECT set_config('synchronous_commit', 'off', true)) AS quick (setting)
WHERE quick.setting = 'off'
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder, process = excluded.process, mark = excluded.mark,
    taken_at = excluded.taken_at, until_at = excluded.until_at
WHERE l.until_at <= clock_timestamp() OR l.holder IN ($2, $6)
RETURNING true AS taken;

-- name: total_batches
-- $1 uuid
SELECT slice,
       coalesce(sum(dispatched), 0)::bigint AS dispatched,
       coalesce(sum(failed), 0)::bigint AS failed,
       count(*) FILTER (WHERE kind = 'exhausted') AS exhausted,
       coalesce(sum(body_bytes), 0)::bigint AS bytes,
       coalesce(bool_or(attempts_changed OR kind = 'exhausted'), false) AS attempts_changed
FROM "public"."duesweep_journal"
WHERE sweep_id = $1 AND kind <> 'slice'
GROUP BY slice;

-- name: unbind
-- $1 ?
DELETE FROM "public"."duesweep_bindings" WHERE source = $1;

-- name: unsettled_sweeps
-- $1 ?
SELECT s.sweep_id, s.started_at, s.closed_at IS NOT NULL AS is_closed, s.sealed_at, s.command, l.holder, l.mark
FROM "public"."duesweep_sweeps" s
LEFT JOIN "public"."duesweep_leases" l ON l.name = 'sweep ' || s.sweep_id AND l.until_at > clock_timestamp()
WHERE s.source = $1
ORDER BY s.started_at;

-- name: unsubscribe
-- $1 ?, $2 ?
DELETE FROM "public"."SubscriptionRouting" WHERE endpoint = $1 AND topic = $2;

-- name: upcoming
-- $1 ?, $2 timestamptz, $3 ?
SELECT (
    SELECT CASE WHEN earliest.due IS NOT NULL THEN
               (least(greatest(earliest.due, '0001-01-03 00:00:00+00'), '9999-12-29 00:00:00+00')
                   AT TIME ZONE $1::text) AT TIME ZONE 'UTC'
           END
    FROM (
        SELECT min(d.due) AS due
        FROM "public"."Sales.Orders.Delayed" d
        WHERE d.due >= coalesce($2::timestamptz, '-infinity') AND isfinite(d.due)
    ) earliest
) AS due, count(*) AS messages, min(a.next_attempt_at) AS next_attempt
FROM "public"."duesweep_attempts" a JOIN "public"."Sales.Orders.Delayed" d ON d.id = a.message_key
WHERE a.source = $3 AND a.next_attempt_at > clock_timestamp() AND d.due < coalesce($2::timestamptz, '-infinity');

-- name: writer_zones
-- $1 ?, $2 ?
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
WHERE n.nspname = $1::text AND c.relname = $2::text;

-- not sent here: are_batches_over, count_stored, count_stored_since, count_timeless, due_destinations, look_timeless, measure_unsettled, move, next_due, plan_bounds, prune_attempts, read_lease, renew_leases, store_timeout, stored_destinations, zones_agree
