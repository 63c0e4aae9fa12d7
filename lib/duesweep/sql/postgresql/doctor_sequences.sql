-- Returns the sequence behind `seq` of every table of the database that has the columns of a queue table:
-- how far it is (NULL where it is new, or this role may not look), how far it can go, and whether this
-- role may draw from it. No locks.
WITH queue_tables AS (
    SELECT c.oid, n.nspname AS schema, c.relname AS table
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relkind IN ('r', 'p')
    GROUP BY c.oid, n.nspname, c.relname
    HAVING array_agg(a.attname || ' ' || format_type(a.atttypid, NULL)) @> %(typed)s::text[]
       AND array_agg(a.attname::text) @> %(named)s::text[]
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
